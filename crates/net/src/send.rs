//! Sends one request on a connection and reads its response.
//!
//! In: a [`Lease`], a request and a read timeout. Out: a [`Response`] whose body is read in chunks, or a failure that says whether the
//! request may be resent. A connection returns to its pool automatically once its response was read to the end.
//! Size limits, compression and the meaning of a status are left to the callers.

use std::{fmt, time::Duration};

use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, Request, StatusCode,
    body::{Body, Bytes, Frame, Incoming},
    header::{HOST, HeaderValue},
};

use crate::{error::SendError, io_watch::IoWatch, pool::Lease};

/// A request that failed on an open connection.
#[derive(Debug)]
pub struct SendFailure {
    /// The error.
    pub error: SendError,
    /// The connection was reused: the service may have closed it just as the request was sent.
    reused: bool,
    /// No byte of the request was sent.
    pub unsent: bool,
}

impl SendFailure {
    /// Whether the request may be resent immediately on a new connection: a reused connection was closed, and either nothing was sent or
    /// the method is idempotent.
    #[must_use]
    pub fn may_resend(&self, method: &Method) -> bool {
        self.reused && (self.unsent || method.is_idempotent()) && matches!(self.error, SendError::Broken { .. })
    }
}

/// A response whose body is not read yet. Dropping it before the end closes the connection.
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: Incoming,
    /// `None` once the body was read.
    lease: Option<Lease>,
    read_timeout: Duration,
}

impl Lease {
    /// Sends a request whose URI is path and query, and waits for the head of the response. `read_timeout` limits how long the service may
    /// be inactive, here and while the body is read.
    ///
    /// # Errors
    /// When no response arrived.
    pub async fn send(mut self, request: Request<Bytes>, read_timeout: Duration) -> Result<Response, SendFailure> {
        let failure = |error, unsent| SendFailure { error, reused: false, unsent };
        let request = self.prepare(request).map_err(|reason| failure(SendError::Request(reason), true))?;
        self.watch.touch();
        let sent = tokio::select! {
            biased;
            sent = self.sender.try_send_request(request) => sent,
            () = self.watch.wait_inactive(read_timeout) => return Err(failure(SendError::ReadTimeout(read_timeout), false)),
        };
        match sent {
            Ok(response) => {
                let (head, body) = response.into_parts();
                Ok(Response { status: head.status, headers: head.headers, body, lease: Some(self), read_timeout })
            }
            Err(mut failed) => {
                let unsent = failed.take_message().is_some();
                Err(SendFailure { error: self.explain(failed.error()), reused: self.reused, unsent })
            }
        }
    }

    /// Adds the `Host` header, and the absolute form for a proxy.
    fn prepare(&self, mut request: Request<Bytes>) -> Result<Request<Full<Bytes>>, String> {
        let (origin, proxy) = (&self.pool.origin, &self.pool.options.proxy);
        let host = HeaderValue::from_str(&origin.authority()).map_err(|error| error.to_string())?;
        request.headers_mut().insert(HOST, host);
        if let Some(proxy) = proxy.as_ref().filter(|_| !origin.https) {
            proxy.forward(&mut request, origin)?;
        }
        Ok(request.map(Full::new))
    }

    fn explain(&self, error: &hyper::Error) -> SendError {
        explain(&self.watch, self.pool.options.write_timeout, error)
    }
}

fn explain(watch: &IoWatch, write_timeout: Duration, error: &hyper::Error) -> SendError {
    if watch.write_timed_out() {
        return SendError::WriteTimeout(write_timeout);
    }
    let mut failure = "the connection closed early or the response is not valid HTTP".to_owned();
    let mut reason = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        failure = format!("{failure}: {reason}");
        reason = source.to_string();
        cause = source.source();
    }
    SendError::Broken { failure, reason }
}

impl Response {
    /// Whether the body was read to the end.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.lease.is_none() || self.body.is_end_stream()
    }

    /// The next bytes of the body; `None` at its end, when the connection returns to its pool.
    ///
    /// # Errors
    /// When the body ends early or the read timeout passes.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, SendError> {
        while let Some(lease) = &self.lease {
            let frame = tokio::select! {
                biased;
                frame = self.body.frame() => frame,
                () = lease.watch.wait_inactive(self.read_timeout) => return Err(SendError::ReadTimeout(self.read_timeout)),
            };
            match frame.transpose().map_err(|error| lease.explain(&error))?.map(Frame::into_data) {
                Some(Ok(bytes)) => return Ok(Some(bytes)),
                // Trailers are ignored.
                Some(Err(_)) => {}
                None => self.lease.take().into_iter().for_each(Lease::release),
            }
        }
        Ok(None)
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).field("headers", &self.headers).finish_non_exhaustive()
    }
}

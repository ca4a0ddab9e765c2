//! Sends one request and reads its response.
//!
//! In: a connection pool, and a request. Out: the head of the response, and its body, read within limits. Tracks whether any byte was
//! sent, which decides the effect of a failed call. `toolhub-net` provides the connections and their timeouts.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use hyper::header::CONTENT_LENGTH;
use toolhub_core::{CallContext, ToolError};
use toolhub_net::{Bytes, DialError, HeaderMap, Lease, Permit, Pool, Request, Response, SendError, StatusCode};

use super::{decompress::Decompressor, request::OutgoingRequest, request_error::RequestError};

/// How a request is sent.
pub(crate) struct SendOptions<'a> {
    pub(crate) pool: &'a Arc<Pool>,
    /// How long the service may send nothing.
    pub(crate) read_timeout: Duration,
    /// Whether any byte was sent.
    pub(crate) sent: &'a AtomicBool,
    /// The call, which counts as not started until the first byte is sent.
    pub(crate) call: Option<&'a CallContext>,
}

/// A response whose body is still to be read.
pub(crate) struct OpenResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    response: Response,
    permit: Option<Permit>,
}

/// How much of a body is read.
#[derive(Clone, Copy)]
pub(crate) struct ReadLimit {
    pub(crate) bytes: usize,
    pub(crate) decompressed: usize,
    /// Whether a body that exceeds the limit is truncated instead of refused.
    pub(crate) truncate: bool,
}

/// How much of an unneeded body is read so that its connection can be reused.
pub(crate) const DISCARD_LIMIT: ReadLimit = ReadLimit { bytes: 16 * 1024, decompressed: 16 * 1024, truncate: true };

/// Maximum length of path and query, which is the limit of hyper.
const MAX_TARGET: usize = 65_534;

/// Sends a request. Resends it on a new connection if that is safe.
pub(crate) async fn send_request(
    options: &SendOptions<'_>,
    outgoing: &OutgoingRequest,
    permit: Option<Permit>,
) -> Result<OpenResponse, RequestError> {
    let mut lease = options.connect(options.pool.lease()).await?;
    loop {
        let request = build_request(outgoing)?;
        let before = options.sent.swap(true, Ordering::Relaxed);
        let failed = match lease.send(request, options.read_timeout).await {
            Ok(response) => return Ok(OpenResponse::new(response, permit)),
            Err(failed) => failed,
        };
        if !failed.may_resend(&outgoing.method) {
            return Err(failed.error.into());
        }
        if failed.unsent {
            options.sent.store(before, Ordering::Relaxed);
        }
        lease = options.connect(options.pool.dial()).await?;
    }
}

impl SendOptions<'_> {
    /// Waits for a connection. A timeout here has no effect as long as nothing was sent.
    async fn connect(&self, lease: impl Future<Output = Result<Lease, DialError>>) -> Result<Lease, RequestError> {
        let lease = match self.call.filter(|_| !self.sent.load(Ordering::Relaxed)) {
            Some(call) => call.wait_before_start(lease).await.map_err(|error| RequestError::Tool(Box::new(error)))?,
            None => lease.await,
        };
        lease.map_err(|error| SendError::Dial(error).into())
    }
}

fn build_request(outgoing: &OutgoingRequest) -> Result<Request<Bytes>, RequestError> {
    // Only arguments can make it too long, so this does not count against the service.
    if outgoing.target.len() > MAX_TARGET {
        let text = format!("The arguments are too long: the address they make has more than {MAX_TARGET} bytes.");
        return Err(RequestError::Tool(Box::new(ToolError::refused(text))));
    }
    let uri = outgoing.target.parse::<hyper::Uri>();
    let mut request = Request::new(outgoing.body.clone());
    *request.method_mut() = outgoing.method.clone();
    *request.uri_mut() = uri.map_err(|error| RequestError::from(SendError::Request(error.to_string())))?;
    *request.headers_mut() = outgoing.headers.clone();
    Ok(request)
}

impl From<SendError> for RequestError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Dial(DialError::Forbidden(why)) => Self::Forbidden(why),
            SendError::Dial(DialError::Timeout(time)) => Self::ConnectTimeout(time),
            SendError::Dial(DialError::Unreachable { .. } | DialError::Tls { .. }) => {
                Self::Unreachable(error.to_string())
            }
            SendError::WriteTimeout(time) => Self::WriteTimeout(time),
            SendError::ReadTimeout(time) => Self::ReadTimeout(time),
            SendError::Request(_) | SendError::Broken { .. } => Self::Broken(error.to_string()),
        }
    }
}

impl OpenResponse {
    fn new(mut response: Response, permit: Option<Permit>) -> Self {
        Self { status: response.status, headers: std::mem::take(&mut response.headers), response, permit }
    }

    /// The next bytes of the body as they are; `None` at its end.
    #[cfg(feature = "mcp")]
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, RequestError> {
        Ok(self.response.chunk().await?)
    }

    /// Discards the body, reading it as far as that is cheaper than a new connection; returns the permit.
    pub(crate) async fn discard(mut self) -> Option<Permit> {
        let permit = self.permit.take();
        let _ = self.read(DISCARD_LIMIT).await;
        permit
    }

    /// Reads the body, decompressed. The connection is reused only if the response was read to its end.
    pub(crate) async fn read(self, limit: ReadLimit) -> Result<Vec<u8>, RequestError> {
        let Self { headers, mut response, .. } = self;
        if response.is_end() {
            // Without a body the content encoding does not matter; the response to a HEAD has one too.
            response.chunk().await?;
            return Ok(Vec::new());
        }
        let too_large = RequestError::TooLarge { limit: limit.bytes, decompressed: false };
        let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if !limit.truncate && length.is_some_and(|length| length > limit.bytes) {
            return Err(too_large);
        }
        let mut decompressor = Decompressor::new(&headers, limit)?;
        let mut read = 0_usize;
        while let Some(bytes) = response.chunk().await? {
            read = read.saturating_add(bytes.len());
            if read > limit.bytes {
                if limit.truncate {
                    return decompressor.finish();
                }
                return Err(too_large);
            }
            if !decompressor.push(&bytes)? {
                return decompressor.finish();
            }
        }
        if read == 0 { Ok(Vec::new()) } else { decompressor.finish() }
    }
}

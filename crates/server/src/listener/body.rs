//! Request and response bodies: enforces size and time limits on request bodies, ends event streams at shutdown.
//!
//! In: hyper's body, or the response body of a route. Out: the same bytes. A request body that is too large or too slow
//! ends with `BodyError`, also while a handler is reading it.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    BoxError,
    body::{Body, Bytes},
};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::conn_state::{ConnState, InFlight};
use crate::body_error::BodyError;

/// A request body with a size limit and a deadline.
pub(crate) struct LimitedBody {
    body: Incoming,
    conn: Arc<ConnState>,
    remaining: usize,
    started: Instant,
    max_duration: Duration,
    /// Created at the first wait: most bodies have arrived completely before they are read.
    timer: Option<Pin<Box<Sleep>>>,
    complete: bool,
}

impl LimitedBody {
    /// Wraps the body of a new request; the deadline starts now.
    pub(crate) fn wrap(body: Incoming, conn: Arc<ConnState>, max_bytes: usize, max_duration: Duration) -> Body {
        if body.is_end_stream() {
            return Body::empty();
        }
        let started = Instant::now();
        Body::new(Self { body, conn, remaining: max_bytes, started, max_duration, timer: None, complete: false })
    }
}

impl HttpBody for LimitedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let frame = match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let (started, max_duration) = (this.started, this.max_duration);
                let timer =
                    this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(started + max_duration)));
                ready!(timer.as_mut().poll(cx));
                return Poll::Ready(Some(Err(BodyError::TooSlow.into())));
            }
        };
        match frame {
            Some(Ok(frame)) => {
                let len = frame.data_ref().map_or(0, Bytes::len);
                let Some(remaining) = this.remaining.checked_sub(len) else {
                    return Poll::Ready(Some(Err(BodyError::TooLarge.into())));
                };
                this.remaining = remaining;
                // A body that trickles in never waits long enough for the timer, so check the deadline here as well.
                if this.started.elapsed() > this.max_duration {
                    return Poll::Ready(Some(Err(BodyError::TooSlow.into())));
                }
                this.complete = this.body.is_end_stream();
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(error.into()))),
            None => {
                this.complete = true;
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for LimitedBody {
    fn drop(&mut self) {
        if !self.complete && !self.body.is_end_stream() {
            self.conn.mark_unread_body();
        }
    }
}

/// A response body. It counts as in flight until it is dropped.
pub(crate) struct ResponseBody {
    body: Body,
    /// Set for event streams, which have no end of their own: resolves when the server shuts down.
    shutdown: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    _in_flight: InFlight,
}

impl ResponseBody {
    pub(crate) fn new(body: Body, shutdown: Option<WaitForCancellationFutureOwned>, in_flight: InFlight) -> Self {
        Self { body, shutdown: shutdown.map(Box::pin), _in_flight: in_flight }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        if frame.is_pending() && this.shutdown.as_mut().is_some_and(|shutdown| shutdown.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(None);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

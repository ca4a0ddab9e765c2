//! Bodies on their way: what a client sends within its limits, what it gets for as long as the server serves.
//!
//! In: hyper's body, or the answer of a route. Out: the same bytes. A body that is too large or comes too slowly ends with
//! `BodyError`, also in the middle of a handler that reads it.

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

/// What a client sends.
pub(crate) struct LimitedBody {
    body: Incoming,
    conn: Arc<ConnState>,
    remaining: usize,
    started: Instant,
    max_duration: Duration,
    /// Made when somebody waits for the first time: most bodies are here at once.
    timer: Option<Pin<Box<Sleep>>>,
    complete: bool,
}

impl LimitedBody {
    /// The body of a request that was just made.
    pub(crate) fn wrap(body: Incoming, conn: Arc<ConnState>, most_bytes: usize, most: Duration) -> Body {
        if body.is_end_stream() {
            return Body::empty();
        }
        let begun = Instant::now();
        Body::new(Self {
            body,
            conn,
            remaining: most_bytes,
            started: begun,
            max_duration: most,
            timer: None,
            complete: false,
        })
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
                let (begun, most) = (this.started, this.max_duration);
                let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(begun + most)));
                ready!(timer.as_mut().poll(cx));
                return Poll::Ready(Some(Err(BodyError::TooSlow.into())));
            }
        };
        match frame {
            Some(Ok(frame)) => {
                let many = frame.data_ref().map_or(0, Bytes::len);
                let Some(left) = this.remaining.checked_sub(many) else {
                    return Poll::Ready(Some(Err(BodyError::TooLarge.into())));
                };
                this.remaining = left;
                // A body that is always there, a little of it, is as slow as one that is not.
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

/// What a client gets.
pub(crate) struct ResponseBody {
    body: Body,
    /// A stream without an end of its own ends when the server does.
    shutdown: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    _in_flight: InFlight,
}

impl ResponseBody {
    pub(crate) fn new(body: Body, until: Option<WaitForCancellationFutureOwned>, working: InFlight) -> Self {
        Self { body, shutdown: until.map(Box::pin), _in_flight: working }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        if frame.is_pending() && this.shutdown.as_mut().is_some_and(|until| until.as_mut().poll(cx).is_ready()) {
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

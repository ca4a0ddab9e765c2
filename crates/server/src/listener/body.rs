//! Request and response bodies: enforces size and time limits on request bodies, tracks how much of an answer is written,
//! ends event streams.
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

use crate::{
    body_error::BodyError,
    connections::{Answer, ConnState, Connections, Parts},
    settings::Limits,
};

/// A request body with a size limit and a deadline.
pub(crate) struct LimitedBody {
    body: Incoming,
    connections: Arc<Connections>,
    conn: Arc<ConnState>,
    /// The bytes given to the handler, which collects them until the body is complete.
    received: usize,
    remaining: usize,
    started: Instant,
    max_duration: Duration,
    /// Created at the first wait: most bodies have arrived completely before they are read.
    timer: Option<Pin<Box<Sleep>>>,
    complete: bool,
}

impl LimitedBody {
    /// Wraps the body of a new request; the deadline starts now.
    pub(crate) fn wrap(body: Incoming, connections: Arc<Connections>, conn: Arc<ConnState>, limits: &Limits) -> Body {
        if body.is_end_stream() {
            return Body::empty();
        }
        Body::new(Self {
            body,
            connections,
            conn,
            received: 0,
            remaining: limits.body,
            started: Instant::now(),
            max_duration: limits.body_timeout,
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
                this.received += len;
                this.connections.on_received(&this.conn, len);
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
        self.connections.on_released(&self.conn, self.received);
        if !self.complete && !self.body.is_end_stream() {
            self.conn.mark_unread_body();
        }
    }
}

/// The largest part of an answer that is given to hyper at once. A client must read as much within `body_timeout`.
const MAX_PART: usize = 64 << 10;

/// A response body. Its request is in flight until it was written.
pub(crate) struct ResponseBody {
    body: Body,
    answer: Arc<Answer>,
    /// What hyper has not taken yet of the last frame of `body`.
    rest: Parts,
    /// Set for event streams, which have no end of their own: resolves when the server shuts down or makes room.
    end: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl ResponseBody {
    pub(crate) fn new(body: Body, answer: Arc<Answer>, end: Option<WaitForCancellationFutureOwned>) -> Self {
        Self { body, answer, rest: Parts::default(), end: end.map(Box::pin) }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.rest.len() > 0 {
            return Poll::Ready(Some(Ok(Frame::data(this.rest.next(&this.answer)))));
        }
        let frame = match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let is_ended = this.end.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready());
                return if is_ended { Poll::Ready(None) } else { Poll::Pending };
            }
        };
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| match frame.into_data() {
                Ok(data) => {
                    this.rest = this.answer.parts(data, MAX_PART);
                    Frame::data(this.rest.next(&this.answer))
                }
                Err(frame) => frame,
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.len() == 0 && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, hint) = (self.rest.len() as u64, self.body.size_hint());
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper + rest);
        }
        whole
    }
}

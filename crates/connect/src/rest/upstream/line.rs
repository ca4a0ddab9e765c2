//! The bytes of a connection, watched.
//!
//! In: a stream. Out: the same stream, and a [`Line`] that knows when something last moved on it and whether anything was ever
//! sent. A write that is stuck for too long ends the connection here, because nobody above sees single writes.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

/// What is known of a connection.
#[derive(Debug)]
pub(crate) struct Line {
    born: Instant,
    /// When bytes last moved, in milliseconds of its life.
    moved: AtomicU64,
    stuck: AtomicBool,
    /// Whether something was written that is not all gone yet.
    unsent: AtomicBool,
}

impl Line {
    pub(super) fn new() -> Arc<Self> {
        let (moved, stuck, unsent) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { born: Instant::now(), moved, stuck, unsent })
    }

    pub(super) fn age(&self) -> Duration {
        self.born.elapsed()
    }

    /// Whether it ended because a write was stuck.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Acquire)
    }

    /// Whether a part of what is to be sent waits here still. What is written is followed by a flush once all of it is gone, so a service
    /// that has read everything before it answered has seen one.
    pub(super) fn is_unsent(&self) -> bool {
        self.unsent.load(Ordering::Acquire)
    }

    /// Something moves, or is about to.
    pub(crate) fn stir(&self) {
        let life = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(life, Ordering::Release);
    }

    /// Waits until nothing has moved for this long.
    pub(crate) async fn silence(&self, longest: Duration) {
        loop {
            let last = self.born + Duration::from_millis(self.moved.load(Ordering::Acquire));
            let Some(end) = last.checked_add(longest) else { return std::future::pending().await };
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

/// A stream that is watched.
pub(super) struct Watched<S> {
    stream: S,
    line: Arc<Line>,
    longest_write: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, line: Arc<Line>, longest_write: Duration) -> Self {
        Self { stream, line, longest_write, waiting: None }
    }

    /// Lets a write wait only so long.
    fn bounded<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waiting = None;
            self.line.stir();
            return polled;
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.longest_write)));
        ready!(waiting.as_mut().poll(cx));
        self.line.stuck.store(true, Ordering::Release);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if polled.is_ready() {
            self.line.stir();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.line.unsent.store(true, Ordering::Release);
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bounded(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.line.unsent.store(true, Ordering::Release);
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.bounded(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        if polled.is_ready() {
            self.line.unsent.store(false, Ordering::Release);
        }
        self.bounded(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

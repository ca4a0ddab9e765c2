//! Activity of a connection: when bytes last moved, and whether all that was written has left.
//!
//! In: a stream. Out: the same stream, and an [`IoWatch`] on it. A write that blocks for too long fails here, because hyper shows no
//! single writes to the code above it.

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

/// The activity of one connection.
#[derive(Debug)]
pub(crate) struct IoWatch {
    opened: Instant,
    /// When bytes last moved, in milliseconds since it was opened.
    last_active_millis: AtomicU64,
    write_timed_out: AtomicBool,
    /// Whether something was written that was not flushed yet.
    unflushed: AtomicBool,
}

impl IoWatch {
    pub(crate) fn new() -> Arc<Self> {
        let (active, write_timed_out, unflushed) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { opened: Instant::now(), last_active_millis: active, write_timed_out, unflushed })
    }

    pub(crate) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Whether the connection ended because a write blocked for too long.
    pub(crate) fn write_timed_out(&self) -> bool {
        self.write_timed_out.load(Ordering::Acquire)
    }

    /// Whether a part of what is to be sent has not left yet. hyper flushes once all of a request is written, so a service that has read
    /// everything before it answered has seen a flush.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.unflushed.load(Ordering::Acquire)
    }

    /// Bytes move, or are about to.
    pub(crate) fn touch(&self) {
        let life = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_active_millis.store(life, Ordering::Release);
    }

    /// Waits until nothing has moved for this long.
    pub(crate) async fn wait_inactive(&self, longest: Duration) {
        loop {
            let last = self.opened + Duration::from_millis(self.last_active_millis.load(Ordering::Acquire));
            let Some(end) = last.checked_add(longest) else { return std::future::pending().await };
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

/// A stream with a watch on it.
pub(crate) struct WatchedStream<S> {
    stream: S,
    watch: Arc<IoWatch>,
    write_timeout: Duration,
    /// Runs while a write blocks.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> WatchedStream<S> {
    pub(crate) fn new(stream: S, watch: Arc<IoWatch>, write_timeout: Duration) -> Self {
        Self { stream, watch, write_timeout, deadline: None }
    }

    /// Fails a write that blocks for too long.
    fn enforce_write_timeout<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.deadline = None;
            self.watch.touch();
            return polled;
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.write_timeout)));
        ready!(deadline.as_mut().poll(cx));
        self.watch.write_timed_out.store(true, Ordering::Release);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if polled.is_ready() {
            self.watch.touch();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.watch.unflushed.store(true, Ordering::Release);
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.enforce_write_timeout(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watch.unflushed.store(true, Ordering::Release);
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.enforce_write_timeout(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        if polled.is_ready() {
            self.watch.unflushed.store(false, Ordering::Release);
        }
        self.enforce_write_timeout(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

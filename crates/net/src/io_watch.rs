//! Activity tracking of a connection: when bytes last moved, and whether all written bytes were flushed.
//!
//! In: a stream. Out: the same stream, and an [`IoWatch`] on it. The write timeout is enforced here, because hyper does not expose
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
    /// When bytes last moved, in milliseconds since `opened`.
    last_active_millis: AtomicU64,
    write_timed_out: AtomicBool,
    /// Whether written bytes are not flushed yet.
    unflushed: AtomicBool,
}

impl IoWatch {
    pub(crate) fn new() -> Arc<Self> {
        let (last_active_millis, write_timed_out, unflushed) =
            (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { opened: Instant::now(), last_active_millis, write_timed_out, unflushed })
    }

    pub(crate) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Whether the connection failed because of the write timeout.
    pub(crate) fn write_timed_out(&self) -> bool {
        self.write_timed_out.load(Ordering::Acquire)
    }

    /// Whether part of the request is not flushed yet. hyper flushes once the whole request is written, so after a flush the service can
    /// have received all of it.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.unflushed.load(Ordering::Acquire)
    }

    /// Records activity now.
    pub(crate) fn touch(&self) {
        let elapsed = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_active_millis.store(elapsed, Ordering::Release);
    }

    /// Resolves once no byte has moved for this long.
    pub(crate) async fn wait_inactive(&self, timeout: Duration) {
        loop {
            let last = self.opened + Duration::from_millis(self.last_active_millis.load(Ordering::Acquire));
            let Some(end) = last.checked_add(timeout) else { return std::future::pending().await };
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

/// A stream that records its activity and enforces the write timeout.
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

    /// Fails a write that blocks longer than the write timeout.
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

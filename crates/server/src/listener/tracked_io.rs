//! A TCP stream that reports reads and blocked writes to its `ConnState`.
//!
//! In: a TCP stream. Out: the same bytes. If it is dropped while the client still sends a body that was not read, it
//! drains the socket for a moment: closing with unread data resets the connection, and the client would lose the
//! response.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::connections::{ConnCommand, ConnState, Registration};

/// How long the socket is drained after its last response, so that the client can read it.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// How many bytes are drained at most.
const MAX_LINGER_BYTES: usize = 16 << 20;

/// A connection with its registration.
#[derive(Debug)]
pub(crate) struct TrackedIo {
    /// `None` only while it is dropped.
    open: Option<(TcpStream, Registration)>,
}

impl TrackedIo {
    pub(crate) fn new(tcp: TcpStream, registration: Registration) -> Self {
        Self { open: Some((tcp, registration)) }
    }

    fn parts(&mut self) -> io::Result<(Pin<&mut TcpStream>, &ConnState)> {
        let (tcp, registration) = self.open.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        Ok((Pin::new(tcp), &registration.conn))
    }
}

impl AsyncRead for TrackedIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some((_, registration)) = &mut self.open {
            registration.start();
        }
        let (tcp, conn) = self.parts()?;
        let before = buf.filled().len();
        ready!(tcp.poll_read(cx, buf))?;
        if buf.filled().len() > before {
            conn.on_bytes_read();
        }
        Poll::Ready(Ok(()))
    }
}

/// Reports whether a write is blocked on the client.
fn track_write<T>(conn: &ConnState, written: Poll<T>) -> Poll<T> {
    if written.is_pending() {
        conn.on_write_blocked();
    } else {
        conn.on_write_progress();
    }
    written
}

impl AsyncWrite for TrackedIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let (tcp, conn) = self.parts()?;
        track_write(conn, tcp.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let (tcp, conn) = self.parts()?;
        track_write(conn, tcp.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.parts()?.0.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.parts()?.0.poll_shutdown(cx)
    }
}

impl Drop for TrackedIo {
    fn drop(&mut self) {
        let Some((tcp, registration)) = self.open.take() else { return };
        if registration.conn.needs_linger()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move {
                let told_to_close =
                    std::future::poll_fn(|context| registration.conn.poll_command(context, ConnCommand::Drain));
                tokio::select! {
                    _ = tokio::time::timeout(LINGER_TIMEOUT, drain_unread(tcp)) => {}
                    // Another connection needs the place.
                    _ = told_to_close => {}
                }
                drop(registration);
            });
        }
    }
}

/// Reads and discards until the client closes, or `MAX_LINGER_BYTES` were read.
async fn drain_unread(mut tcp: TcpStream) {
    let (mut buffer, mut remaining) = (vec![0; 16 << 10], MAX_LINGER_BYTES);
    while let Ok(read @ 1..) = tcp.read(&mut buffer).await {
        remaining = remaining.saturating_sub(read);
        if remaining == 0 {
            break;
        }
    }
}

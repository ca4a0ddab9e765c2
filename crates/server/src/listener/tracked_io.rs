//! The bytes of a connection, noted as they come and go.
//!
//! In: a TCP stream. Out: the same, with its `ConnState` told what happens. When it is closed while the client still sends a
//! body nobody wants, it reads on for a moment: the system would otherwise throw the answer away together with the body.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
};

use super::conn_state::{ConnState, Registration};

/// How long a connection is read on after its last answer, so that the client sees it.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// How much is read on at most.
const MAX_LINGER_BYTES: usize = 16 << 20;

/// A connection, and the place it takes.
#[derive(Debug)]
pub(crate) struct TrackedIo {
    /// There until this is dropped.
    open: Option<(TcpStream, Registration, OwnedSemaphorePermit)>,
}

impl TrackedIo {
    pub(crate) fn new(tcp: TcpStream, registration: Registration, place: OwnedSemaphorePermit) -> Self {
        Self { open: Some((tcp, registration, place)) }
    }

    fn parts(&mut self) -> io::Result<(Pin<&mut TcpStream>, &ConnState)> {
        let (tcp, registration, _) = self.open.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        Ok((Pin::new(tcp), &registration.conn))
    }
}

impl AsyncRead for TrackedIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (tcp, conn) = self.parts()?;
        let before = buf.filled().len();
        ready!(tcp.poll_read(cx, buf))?;
        if buf.filled().len() > before {
            conn.on_bytes_read();
        }
        Poll::Ready(Ok(()))
    }
}

/// Notes whether a write waits for the client.
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
        let Some((tcp, registration, place)) = self.open.take() else { return };
        if registration.conn.has_unread_body()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move {
                let _ = tokio::time::timeout(LINGER_TIMEOUT, drain_unread(tcp)).await;
                drop((registration, place));
            });
        }
    }
}

/// Reads until the client has enough of it.
async fn drain_unread(mut tcp: TcpStream) {
    let (mut bin, mut left) = (vec![0; 16 << 10], MAX_LINGER_BYTES);
    while let Ok(many @ 1..) = tcp.read(&mut bin).await {
        left = left.saturating_sub(many);
        if left == 0 {
            break;
        }
    }
}

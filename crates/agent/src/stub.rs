//! A scripted model over HTTP, with the wire formats of OpenAI and Anthropic, including their errors.
//!
//! In: a script and a listener. Out: a server for real clients. `request` parses requests in either wire format and
//! rejects what a provider would reject; `openai` and `anthropic` render the responses; `script` decides the replies.
//! Keys are accepted and ignored.

mod anthropic;
mod openai;
mod request;
mod routes;
mod wire;

use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use axum::serve::ListenerExt;
use tokio::{net::TcpListener, task::JoinHandle};

use crate::script::Script;

/// Callback for the log line of each request.
type RequestLogger = dyn Fn(&str) + Send + Sync;

/// A scripted model that is served on localhost until this is dropped.
///
/// ```
/// use toolhub_agent::{OpenAi, Script, Stub};
///
/// # async fn serve() -> std::io::Result<()> {
/// let stub = Stub::serve(Script::demo(), 0).await?;
/// let model = OpenAi::new("scripted").base_url(stub.base_url());
/// # Ok(())
/// # }
/// ```
pub struct Stub {
    address: SocketAddr,
    task: JoinHandle<io::Result<()>>,
}

impl Stub {
    /// Serves a script on this port of localhost; 0 lets the system choose.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn serve(script: Script, port: u16) -> io::Result<Self> {
        Self::serve_on(script, TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?, None)
    }

    /// Serves a script on an open listener; the logger gets one line per request.
    ///
    /// # Errors
    /// When the listener has no address.
    pub fn serve_on(script: Script, listener: TcpListener, logger: Option<Arc<RequestLogger>>) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let routes = routes::routes(script, logger);
        // TCP_NODELAY: the small chunks of a stream must not be delayed.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        // Not supervised: axum serves each connection on a task of its own, so a panic of a handler does not end this loop.
        Ok(Self { address, task: tokio::spawn(async move { axum::serve(listener, routes).await }) })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL for clients: the address with `/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Stub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stub").field("address", &self.address).finish_non_exhaustive()
    }
}

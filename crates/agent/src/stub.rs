//! A scripted model behind HTTP: it speaks as OpenAI and Anthropic do, also where things go wrong.
//!
//! In: a script and a place to listen. Out: a server that real clients can talk to. `read` understands what is asked in either wire
//! format and refuses what a provider would refuse; `openai` and `anthropic` write the answers; what is answered, `script` decides.
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

/// Whoever is told of each request, in one line.
type RequestLogger = dyn Fn(&str) + Send + Sync;

/// A scripted model that is served on this machine until this is dropped.
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
    /// Serves a script on this port of this machine; 0 lets the system choose.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn serve(script: Script, port: u16) -> io::Result<Self> {
        Self::serve_on(script, TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?, None)
    }

    /// Serves a script where somebody listens already; whoever is given is told of each request in one line.
    ///
    /// # Errors
    /// When the listener has no address.
    pub fn serve_on(script: Script, listener: TcpListener, tell: Option<Arc<RequestLogger>>) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let routes = routes::routes(script, tell);
        // Small pieces are sent at once: waiting for more would hold up whoever listens.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        Ok(Self { address, task: tokio::spawn(async move { axum::serve(listener, routes).await }) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What clients are given: the address with `/v1`.
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

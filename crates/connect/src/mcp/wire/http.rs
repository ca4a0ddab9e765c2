//! A server at an address: streamable HTTP.
//!
//! In: the address with its credentials, as a [`Rest`]. Out: a `Transport` for `rmcp`, and a [`Router`] that delivers everything
//! else. `rmcp` decides what is posted, with which session and protocol headers; `client` sends it with the connections
//! and credentials of `address`, so that address guard, TLS and timeouts hold and `rmcp` never sees a secret; `response` and `stream`
//! read what the server says.

mod address;
mod client;
mod http_sse;
mod response;
mod stream;

use std::{sync::Arc, time::Duration};

use rmcp::{
    RoleClient,
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::{
        StreamableHttpClientTransport, Transport,
        common::client_side_sse::SseRetryPolicy,
        streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError},
    },
};

use tokio::sync::mpsc;

use address::Address;
use client::HttpClient;
pub(crate) use client::HttpFailed;

use super::{
    exchange::HttpFailure,
    lifecycle::{EndCause, Lifecycle},
    message::Violation,
    router::{Router, RouterSettings},
};
use crate::{
    command::ProgramSecrets,
    mcp::{era::Era, log_ring::LogRing},
    rest::{HttpError, Rest, RestError},
};

/// `rmcp` runs so many requests at the same time. The hub limits calls itself.
const MAX_REQUESTS: usize = 1_024;
/// How many replies to requests of the server wait to be posted.
const MAX_REPLIES: usize = 32;
/// How long `rmcp` may take to end the session at the server.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(6);

/// Limits and facts of a connection to an address.
pub(crate) struct HttpSettings {
    pub(crate) era: Era,
    pub(crate) max_message: usize,
    pub(crate) roots: Vec<serde_json::Value>,
    pub(crate) logs: Arc<LogRing>,
}

pub(crate) struct HttpTransport {
    inner: StreamableHttpClientTransport<HttpClient>,
    router: Arc<Router>,
    lifecycle: Arc<Lifecycle>,
}

/// What a server at an address is reached by.
pub(crate) struct HttpConnection {
    pub(crate) transport: HttpTransport,
    pub(crate) router: Arc<Router>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) secrets: Arc<ProgramSecrets>,
    pub(crate) handle: HttpHandle,
}

/// What the handshake asks the client after it has failed.
pub(crate) struct HttpHandle(HttpClient);

/// Why there is no connection to an address. Nothing was sent.
#[derive(Debug)]
pub(crate) enum HttpStartError {
    /// The settings are invalid.
    Settings(Vec<RestError>),
    /// The credentials are not available.
    Credentials(HttpError),
}

/// Prepares a connection. Nothing is sent to the server yet, but a token may be fetched.
pub(crate) async fn start(rest: &Rest, settings: HttpSettings) -> Result<HttpConnection, HttpStartError> {
    let HttpSettings { era, max_message, roots, logs } = settings;
    let lifecycle = Lifecycle::new();
    let address = Address::new(rest).await?;
    let (secrets, origin) = (address.secrets.clone(), address.origin());
    let (sender, replies) = mpsc::channel(MAX_REPLIES);
    let reply_sink = move |text| sender.try_send(text).map_err(|_| Violation::RepliesUnread);
    let settings = RouterSettings { era, roots, logs, secrets: secrets.clone(), shows_lists: era == Era::Modern };
    let router = Router::new(settings, Box::new(reply_sink));
    let client = HttpClient::new(address, router.clone(), lifecycle.clone(), max_message);
    // Not supervised: it ends with the connection.
    tokio::spawn(client.clone().send_replies(replies));
    // `rmcp` passes the address back, and it is not used.
    let mut config = StreamableHttpClientTransportConfig::with_uri(origin)
        .reinit_on_expired_session(false)
        .max_concurrent_requests(MAX_REQUESTS)
        .max_sse_event_size(usize::MAX);
    config.retry_config = Arc::new(Resume);
    let inner = StreamableHttpClientTransport::with_client(client.clone(), config);
    let transport = HttpTransport { inner, router: router.clone(), lifecycle: lifecycle.clone() };
    Ok(HttpConnection { transport, router, lifecycle, secrets, handle: HttpHandle(client) })
}

impl HttpHandle {
    /// Why the handshake failed, if the reason is not an answer of the server.
    pub(crate) fn take_failure(&self) -> Option<HttpFailure> {
        self.0.take_failure()
    }

    /// The streamable HTTP address to try, if the server speaks only HTTP+SSE.
    pub(crate) async fn find_http_sse(&self) -> Option<String> {
        http_sse::detect(&self.0).await
    }
}

/// When a broken event stream is resumed: a few times, with growing delays.
#[derive(Debug)]
struct Resume;

impl SseRetryPolicy for Resume {
    fn retry(&self, tries: usize) -> Option<Duration> {
        let doubled = u32::try_from(tries).ok().filter(|tries| *tries < 5)?;
        Some(Duration::from_millis(500) * 2_u32.pow(doubled))
    }
}

impl Transport<RoleClient> for HttpTransport {
    type Error = StreamableHttpError<HttpFailed>;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let registered = self.router.outgoing(&item).map(|(id, _)| id);
        let (sending, router) = (self.inner.send(item), self.router.clone());
        async move {
            let sent = sending.await;
            if let Some(id) = registered.filter(|_| sent.is_err()) {
                router.not_sent(id);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        tokio::select! {
            biased;
            () = self.lifecycle.close_requested() => None,
            _ = self.lifecycle.ended() => None,
            message = self.inner.receive() => message,
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.lifecycle.end(EndCause::Closed);
        // Ends the session at the server.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.inner.close()).await;
        self.lifecycle.release();
        Ok(())
    }
}

impl Drop for HttpTransport {
    fn drop(&mut self) {
        self.lifecycle.request_close();
        self.lifecycle.end(EndCause::Closed);
        self.lifecycle.release();
    }
}

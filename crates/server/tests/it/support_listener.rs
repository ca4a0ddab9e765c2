//! A server with a few tools, behind a socket or without one, and a plain client.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Request, Response, StatusCode, header},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{Semaphore, oneshot},
    task::JoinHandle,
};
use toolhub_core::{ToolError, ToolHub, backend::Memory, dynamic};
use toolhub_server::{Auth, KeySetting, NewKey, Scope, ServeError, Server, Settings};
use tower::ServiceExt;

/// Longer than any test takes; only a failing test waits this long.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A hub on its own store.
pub(crate) struct TestHub {
    pub(crate) hub: ToolHub,
    pub(crate) store: Arc<Memory>,
    /// The tool `slow` waits for one of these permits.
    pub(crate) release: Arc<Semaphore>,
}

pub(crate) async fn test_hub() -> TestHub {
    let (store, release) = (Arc::new(Memory::default()), Arc::new(Semaphore::new(0)));
    let any = json!({"type": "object"});
    let echo = dynamic("echo", any.clone(), |arguments, _| async move { Ok(arguments) });
    let permits = release.clone();
    let slow = dynamic("slow", any, move |_, _| {
        let release = permits.clone();
        async move {
            release.acquire().await.map_err(|_| ToolError::new("the semaphore is closed"))?.forget();
            Ok(json!("done"))
        }
    });
    let hub = ToolHub::builder().store(store.clone()).tool(echo.read_only()).tool(slow).build().await.unwrap();
    TestHub { hub, store, release }
}

/// Settings with a port chosen by the system.
pub(crate) fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.port = 0;
    settings
}

/// A key for the settings, and its text.
pub(crate) fn make_key(name: &str, tenant: &str, scopes: &[Scope]) -> (KeySetting, String) {
    let new = NewKey::make().unwrap();
    let setting =
        KeySetting { name: name.into(), tenant: tenant.into(), hash: new.hash, scopes: scopes.to_vec(), expires: None };
    (setting, new.key)
}

/// Settings with these keys.
pub(crate) fn settings_with_keys(keys: impl IntoIterator<Item = KeySetting>) -> Settings {
    let mut settings = settings();
    settings.auth = Auth::Keys(keys.into_iter().collect());
    settings
}

/// A server behind a socket.
pub(crate) struct RunningServer {
    pub(crate) address: SocketAddr,
    pub(crate) hub: TestHub,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), ServeError>>,
}

pub(crate) async fn start_server(settings: Settings) -> RunningServer {
    let hub = test_hub().await;
    let bound = Server::new(hub.hub.clone(), hub.store.clone(), settings).bind().await.unwrap();
    let (stop, stopped) = oneshot::channel();
    let address = bound.address();
    let task = tokio::spawn(bound.serve(async {
        let _ = stopped.await;
    }));
    RunningServer { address, hub, stop: Some(stop), task }
}

impl RunningServer {
    /// Requests the shutdown.
    pub(crate) fn stop(&mut self) {
        self.stop.take().map(|stop| stop.send(()));
    }

    /// Waits until it has stopped.
    pub(crate) async fn wait_stopped(self) {
        tokio::time::timeout(TEST_TIMEOUT, self.task).await.expect("it stops").unwrap().unwrap();
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends one request on its own connection; returns the whole response.
    pub(crate) async fn request(&self, head: &str, body: &[u8]) -> String {
        let mut tcp = self.connect().await;
        let head = format!("{head}\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        tcp.write_all(head.as_bytes()).await.unwrap();
        tcp.write_all(body).await.unwrap();
        read_to_end(&mut tcp).await
    }

    /// Makes a call of `echo` that must succeed.
    pub(crate) async fn assert_echo(&self) {
        let response = self.request(CALL_ECHO, br#"{"arguments":{"said":"hello"}}"#).await;
        assert!(response.starts_with("HTTP/1.1 200") && response.contains("hello"), "{response}");
    }
}

pub(crate) const CALL_ECHO: &str = "POST /api/v1/tools/echo/calls HTTP/1.1\r\ncontent-type: application/json";
pub(crate) const CALL_SLOW: &str = "POST /api/v1/tools/slow/calls HTTP/1.1\r\ncontent-type: application/json";

/// Reads until the peer closes; after a reset, what came before it.
pub(crate) async fn read_to_end(tcp: &mut TcpStream) -> String {
    let mut received = Vec::new();
    let reading = async {
        let mut part = [0; 4096];
        while let Ok(len @ 1..) = tcp.read(&mut part).await {
            received.extend_from_slice(&part[..len]);
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, reading).await.expect("the connection is closed");
    String::from_utf8_lossy(&received).into_owned()
}

/// Sends one request to the router, without a socket.
pub(crate) async fn send_raw(router: &Router, request: Request<Body>) -> Response<Body> {
    tokio::time::timeout(TEST_TIMEOUT, router.clone().oneshot(request)).await.expect("an answer").unwrap()
}

/// The status, and the body as JSON or null.
pub(crate) async fn read_json(response: Response<Body>) -> (StatusCode, Value) {
    let status = response.status();
    let streams = response.headers().get(header::CONTENT_TYPE).is_some_and(|media| media == "text/event-stream");
    if streams {
        return (status, Value::Null);
    }
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::String(text)))
}

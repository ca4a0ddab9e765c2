//! Test servers, and hubs with one tool.
//!
//! [`Server`] is an HTTP server with a given handler that records its requests; [`raw_server`] gives the TCP stream to the test, for
//! servers that violate HTTP.

use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Method, Request, Response, body::Bytes, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use toolhub_connect::rest::{Rest, Upstreams};
use toolhub_core::{BoxFuture, CallRequest, ToolBuilder, ToolHub};

/// A request as it came over the wire.
#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    pub(crate) method: Method,
    /// Path and query, as they were sent.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl RecordedRequest {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

pub(crate) type HttpResponse = Response<Full<Bytes>>;

/// A server on this machine.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    /// Number of connections that were closed.
    pub(crate) closed: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl Server {
    /// A server that responds immediately.
    pub(crate) async fn new(handler: impl Fn(&RecordedRequest) -> HttpResponse + Send + Sync + 'static) -> Self {
        let handler = Arc::new(handler);
        Self::with_async_handler(move |request| {
            let handler = handler.clone();
            Box::pin(async move { handler(&request) })
        })
        .await
    }

    /// A server with an asynchronous handler.
    pub(crate) async fn with_async_handler(
        handler: impl Fn(RecordedRequest) -> BoxFuture<'static, HttpResponse> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, closed, requests) =
            (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default(), Arc::default());
        let server = Self { address, connections, closed, requests };
        let (connections, closed, requests) =
            (server.connections.clone(), server.closed.clone(), server.requests.clone());
        let handler = Arc::new(handler);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                let (requests, handler, closed) = (requests.clone(), handler.clone(), closed.clone());
                let serve = service_fn(move |request: Request<Incoming>| {
                    let (requests, handler) = (requests.clone(), handler.clone());
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                        let recorded = RecordedRequest {
                            method: head.method,
                            target: head.uri.to_string(),
                            headers: head.headers,
                            body,
                        };
                        requests.lock().unwrap().push(recorded.clone());
                        Ok::<_, Infallible>(handler(recorded).await)
                    }
                });
                tokio::spawn(async move {
                    let _ =
                        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), serve).await;
                    closed.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        server
    }

    /// A server that responds with the request target.
    pub(crate) async fn echo() -> Self {
        Self::new(|seen| json_ok(json!({"target": seen.target}))).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// The requests since the last call of this.
    pub(crate) fn take_requests(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    pub(crate) fn single_request(&self) -> RecordedRequest {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.into_iter().next().unwrap()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "callers pass literals")]
pub(crate) fn json_ok(body: Value) -> HttpResponse {
    http_response(200, "application/json", body.to_string())
}

pub(crate) fn http_response(status: u16, kind: &str, body: impl Into<Bytes>) -> HttpResponse {
    let builder = Response::builder().status(status).header("content-type", kind);
    builder.body(Full::new(body.into())).unwrap()
}

/// A server that runs `serve` for each connection; returns its address.
pub(crate) async fn raw_server<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(TcpStream) -> F + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// The parameters of all tools of these tests.
pub(crate) fn any_object_schema() -> Value {
    json!({"type": "object"})
}

/// Allows requests to this machine, with a separate connection pool.
pub(crate) fn allow_local(rest: Rest) -> Rest {
    rest.allow_host("127.0.0.1").upstreams(&Upstreams::new())
}

/// A hub with one tool, `it`.
pub(crate) async fn hub(rest: Rest) -> ToolHub {
    hub_with_tool(rest.tool_with("it", any_object_schema())).await
}

pub(crate) async fn hub_with_tool(tool: ToolBuilder) -> ToolHub {
    ToolHub::builder().tool(tool).build().await.unwrap()
}

pub(crate) fn call(hub: &ToolHub, arguments: Value) -> CallRequest<'_> {
    hub.call("it", arguments)
}

/// Waits until a condition holds.
pub(crate) async fn wait_until(mut condition: impl FnMut() -> bool) {
    // A generous timeout; only a failing test waits this long.
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("timed out waiting for a condition");
}

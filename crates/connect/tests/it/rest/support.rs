//! Servers to talk to, and a hub to talk through.
//!
//! [`Server`] answers as it is told and remembers what it was asked, read by hyper; [`raw`] hands the bytes to the test, for servers that do not
//! keep the rules.

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
    /// How many of them are closed again.
    pub(crate) closed: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl Server {
    /// One that answers at once.
    pub(crate) async fn new(answer: impl Fn(&RecordedRequest) -> HttpResponse + Send + Sync + 'static) -> Self {
        let answer = Arc::new(answer);
        Self::with_async_handler(move |seen| {
            let answer = answer.clone();
            Box::pin(async move { answer(&seen) })
        })
        .await
    }

    /// One that may take its time.
    pub(crate) async fn with_async_handler(
        answer: impl Fn(RecordedRequest) -> BoxFuture<'static, HttpResponse> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, closed, seen) =
            (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default(), Arc::default());
        let (counts, ends, notes, answer) = (connections.clone(), closed.clone(), Arc::clone(&seen), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counts.fetch_add(1, Ordering::Relaxed);
                let (notes, answer, ends) = (Arc::clone(&notes), answer.clone(), ends.clone());
                let serve = service_fn(move |request: Request<Incoming>| {
                    let (notes, answer) = (Arc::clone(&notes), answer.clone());
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                        let seen = RecordedRequest {
                            method: head.method,
                            target: head.uri.to_string(),
                            headers: head.headers,
                            body,
                        };
                        let list: &Mutex<Vec<RecordedRequest>> = &notes;
                        list.lock().unwrap().push(seen.clone());
                        Ok::<_, Infallible>(answer(seen).await)
                    }
                });
                tokio::spawn(async move {
                    let _ =
                        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), serve).await;
                    ends.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        Self { address, connections, closed, requests: seen }
    }

    /// One that says what it was asked.
    pub(crate) async fn echo() -> Self {
        Self::new(|seen| json_ok(json!({"target": seen.target}))).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// What it was asked since this was last called.
    pub(crate) fn take_requests(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    pub(crate) fn single_request(&self) -> RecordedRequest {
        let seen = self.requests();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen.into_iter().next().unwrap()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "answers are written where they are given")]
pub(crate) fn json_ok(body: Value) -> HttpResponse {
    http_response(200, "application/json", body.to_string())
}

pub(crate) fn http_response(status: u16, kind: &str, body: impl Into<Bytes>) -> HttpResponse {
    let builder = Response::builder().status(status).header("content-type", kind);
    builder.body(Full::new(body.into())).unwrap()
}

/// A server that does with each connection what it is told; answers its address.
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

/// What any tool of these tests takes.
pub(crate) fn any_object_schema() -> Value {
    json!({"type": "object"})
}

/// A request to this machine, with connections of its own.
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

/// Waits until something is so.
pub(crate) async fn wait_until(mut so: impl FnMut() -> bool) {
    // Much longer than any of it takes: only a test that fails waits for the end of it.
    for _ in 0..10_000 {
        if so() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("it never came to be");
}

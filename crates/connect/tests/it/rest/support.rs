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
pub(crate) struct Seen {
    pub(crate) method: Method,
    /// Path and query, as they were sent.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

pub(crate) type Answer = Response<Full<Bytes>>;

/// A server on this machine.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    /// How many of them are closed again.
    pub(crate) closed: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// One that answers at once.
    pub(crate) async fn new(answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        let answer = Arc::new(answer);
        Self::waiting(move |seen| {
            let answer = answer.clone();
            Box::pin(async move { answer(&seen) })
        })
        .await
    }

    /// One that may take its time.
    pub(crate) async fn waiting(answer: impl Fn(Seen) -> BoxFuture<'static, Answer> + Send + Sync + 'static) -> Self {
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
                        let seen =
                            Seen { method: head.method, target: head.uri.to_string(), headers: head.headers, body };
                        let list: &Mutex<Vec<Seen>> = &notes;
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
        Self { address, connections, closed, seen }
    }

    /// One that says what it was asked.
    pub(crate) async fn echo() -> Self {
        Self::new(|seen| ok(json!({"target": seen.target}))).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// What it was asked since this was last called.
    pub(crate) fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    pub(crate) fn only(&self) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen.into_iter().next().unwrap()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "answers are written where they are given")]
pub(crate) fn ok(body: Value) -> Answer {
    answer(200, "application/json", body.to_string())
}

pub(crate) fn answer(status: u16, kind: &str, body: impl Into<Bytes>) -> Answer {
    let builder = Response::builder().status(status).header("content-type", kind);
    builder.body(Full::new(body.into())).unwrap()
}

/// A server that does with each connection what it is told; answers its address.
pub(crate) async fn raw<F: Future<Output = ()> + Send + 'static>(
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
pub(crate) fn anything() -> Value {
    json!({"type": "object"})
}

/// A request to this machine, with connections of its own.
pub(crate) fn local(rest: Rest) -> Rest {
    rest.allow_host("127.0.0.1").upstreams(&Upstreams::new())
}

/// A hub with one tool, `it`.
pub(crate) async fn hub(rest: Rest) -> ToolHub {
    hub_of(rest.tool_with("it", anything())).await
}

pub(crate) async fn hub_of(tool: ToolBuilder) -> ToolHub {
    ToolHub::builder().tool(tool).build().await.unwrap()
}

pub(crate) fn call(hub: &ToolHub, arguments: Value) -> CallRequest<'_> {
    hub.call("it", arguments)
}

/// Waits until something is so.
pub(crate) async fn until(mut so: impl FnMut() -> bool) {
    // Much longer than any of it takes: only a test that fails waits for the end of it.
    for _ in 0..10_000 {
        if so() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("it never came to be");
}

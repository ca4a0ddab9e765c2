//! Which connections serve another request, and what a call has done whose connection was none any more.

use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use toolhub_connect::rest::{Body, Rest};
use toolhub_core::{ConnectionStateConfig, Effect, ErrorKind, testing::AssertOutcome};

use super::support::{allow_local, call, hub, raw_server};

fn no_retry_config() -> ConnectionStateConfig {
    ConnectionStateConfig { retry_attempts: 1, ..Default::default() }
}

#[tokio::test]
async fn a_service_that_answers_before_it_has_read_everything_is_asked_on_another_connection() {
    for said in ["HTTP/1.1 413 No\r\ncontent-length: 0\r\n\r\n", "HTTP/1.1 413 No\r\ncontent-length: 4\r\n\r\nmuch"] {
        let connections = Arc::new(AtomicUsize::new(0));
        let counts = connections.clone();
        let address = raw_server(move |mut stream| {
            let number = counts.fetch_add(1, Ordering::Relaxed);
            async move {
                let _ = stream.read(&mut [0; 1024]).await;
                let answer = if number == 0 { said } else { "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nmine" };
                let _ = stream.write_all(answer.as_bytes()).await;
                // It neither reads on nor closes.
                std::future::pending::<()>().await;
            }
        })
        .await;
        let rest = Rest::post(format!("http://{address}/")).body(Body::Text("{text}".into()));
        let hub = hub(allow_local(rest).connection(no_retry_config())).await;
        let much = json!({"text": "x".repeat(16 * 1024 * 1024)});
        call(&hub, much).await.assert_effect(Effect::None).assert_error(ErrorKind::ToolRefused);
        assert_eq!(call(&hub, json!({"text": "little"})).await.assert_success(), &json!("mine"));
        assert_eq!(connections.load(Ordering::Relaxed), 2);
    }
}

/// A service on a thread of its own that answers once and then, when it is told, is gone with its connection.
fn closing_server() -> (std::net::SocketAddr, impl FnOnce()) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (go, told) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nmine").unwrap();
        let _ = told.recv();
    });
    let leave = move || {
        go.send(()).unwrap();
        thread.join().unwrap();
    };
    (address, leave)
}

#[test]
fn a_request_that_came_back_unsent_and_finds_no_other_connection_has_done_nothing() {
    // On one thread that looks around after each step: whoever watches the connection learns of its end when the request is there.
    let runtime = tokio::runtime::Builder::new_current_thread().event_interval(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let (address, leave) = closing_server();
        let hub = hub(allow_local(Rest::post(format!("http://{address}/"))).connection(no_retry_config())).await;
        call(&hub, json!({})).await.assert_success();
        leave();
        // The first step is nothing; after it the runtime has seen what became of the connection.
        tokio::spawn(async {});
        call(&hub, json!({})).start().await.assert_effect(Effect::None).assert_error(ErrorKind::UpstreamUnreachable);
    });
}

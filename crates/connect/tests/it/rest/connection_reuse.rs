//! Which connections are reused, and the effect of a call on a connection that was closed meanwhile.

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
use toolhub_connect::rest::{Body, Rest, Upstreams};
use toolhub_core::{
    ConnectionStateConfig, Effect, ErrorKind, HubChange,
    events::EventKind,
    testing::{AssertOutcome, EventRecorder},
};

use super::support::{Server, allow_local, any_object_schema, call, hub, hub_with_tool, raw_server};

fn no_retry_config() -> ConnectionStateConfig {
    ConnectionStateConfig { retry_attempts: 1, ..Default::default() }
}

#[tokio::test]
async fn a_service_that_answers_before_it_has_read_everything_is_asked_on_another_connection() {
    for response in ["HTTP/1.1 413 No\r\ncontent-length: 0\r\n\r\n", "HTTP/1.1 413 No\r\ncontent-length: 4\r\n\r\nmuch"]
    {
        let connections = Arc::new(AtomicUsize::new(0));
        let counts = connections.clone();
        let address = raw_server(move |mut stream| {
            let number = counts.fetch_add(1, Ordering::Relaxed);
            async move {
                let _ = stream.read(&mut [0; 1024]).await;
                let response = if number == 0 { response } else { "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nmine" };
                let _ = stream.write_all(response.as_bytes()).await;
                // It neither reads on nor closes.
                std::future::pending::<()>().await;
            }
        })
        .await;
        let rest = Rest::post(format!("http://{address}/")).body(Body::Text("{text}".into()));
        let hub = hub(allow_local(rest).connection(no_retry_config())).await;
        let large = json!({"text": "x".repeat(16 * 1024 * 1024)});
        call(&hub, large).await.assert_effect(Effect::None).assert_error(ErrorKind::ToolRefused);
        assert_eq!(call(&hub, json!({"text": "little"})).await.assert_success(), &json!("mine"));
        assert_eq!(connections.load(Ordering::Relaxed), 2);
    }
}

/// A server on its own thread that responds once, and closes its connection and listener when the returned function is called.
fn closing_server() -> (std::net::SocketAddr, impl FnOnce()) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (close, closing) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nmine").unwrap();
        let _ = closing.recv();
    });
    let shut_down = move || {
        close.send(()).unwrap();
        thread.join().unwrap();
    };
    (address, shut_down)
}

#[test]
fn a_request_that_came_back_unsent_and_finds_no_other_connection_has_done_nothing() {
    // A single-threaded runtime that polls for I/O after each task: the connection task learns of the close when the request is queued.
    let runtime = tokio::runtime::Builder::new_current_thread().event_interval(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let (address, shut_down) = closing_server();
        let hub = hub(allow_local(Rest::post(format!("http://{address}/"))).connection(no_retry_config())).await;
        call(&hub, json!({})).await.assert_success();
        shut_down();
        // An empty task; after it the runtime has polled for I/O and knows that the connection is closed.
        tokio::spawn(async {});
        call(&hub, json!({})).start().await.assert_effect(Effect::None).assert_error(ErrorKind::UpstreamUnreachable);
    });
}

#[tokio::test]
async fn connections_are_closed_with_the_last_tool_that_uses_them_and_listeners_hear_it() {
    let server = Server::echo().await;
    let upstreams = Upstreams::new();
    let tool = |name: &str| {
        let rest = Rest::get(server.url("/")).allow_host("127.0.0.1").upstreams(&upstreams);
        rest.tool_with(name, any_object_schema())
    };
    let hub = hub_with_tool(tool("one")).await;
    hub.register(tool("two")).unwrap();
    let mut recorder = EventRecorder::new(&hub);
    let mut cleaned = async || {
        tokio::task::yield_now().await;
        let events = recorder.events();
        let of_tool = events.iter().filter_map(|event| match &event.kind {
            EventKind::ExecutorCleaned { tool_name, reason } => Some(format!("{tool_name}: {reason}")),
            _ => None,
        });
        of_tool.collect::<Vec<_>>()
    };
    for name in ["one", "two"] {
        hub.call(name, json!({})).await.assert_success();
    }
    assert_eq!(server.connections(), 1);
    hub.unregister("one").await.unwrap();
    assert_eq!(cleaned().await, [""; 0], "the other tool uses the connection");
    hub.apply(HubChange::tools_only().put(tool("two").description("other"))).await.unwrap();
    assert_eq!(cleaned().await, [""; 0], "the new tool uses it");
    hub.call("two", json!({})).await.assert_success();
    assert_eq!(server.connections(), 1);
    hub.unregister("two").await.unwrap();
    assert_eq!(cleaned().await, ["two: the tool was removed"]);
    hub.register(tool("two")).unwrap();
    hub.call("two", json!({})).await.assert_success();
    assert_eq!(server.connections(), 2);
    hub.shutdown(std::time::Duration::ZERO).await;
    assert_eq!(cleaned().await.last().unwrap(), "two: the hub was shut down");
}

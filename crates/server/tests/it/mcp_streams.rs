//! Event streams of MCP clients over sockets: clients that do not read, and clients with too many.
//!
//! With `TOOLHUB_SOAK` set, 1,000 clients do not read.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::{Instant, timeout},
};
use toolhub_core::{
    CallContext, ResourceTemplate, SourceHandle, SourceLists, SourceReaders, ToolError, ToolHub, ToolName, dynamic,
    testing::TestSource,
};
use toolhub_server::Scope;
use toolhub_testkit::soak;

use crate::{
    support_listener::{RunningServer, TEST_TIMEOUT, make_key, settings, settings_with_keys, start_server},
    support_mcp::{LEGACY, MODERN, initialize_message},
};

/// A source with resources of any name, so that a message can be long.
async fn add_source(hub: &ToolHub) -> SourceHandle {
    let (source, mut control) = TestSource::new("docs");
    hub.add_source(Arc::new(source)).unwrap();
    let handle = control.handle().await;
    let read = dynamic("docs__resources-read", json!({"type": "object"}), |_: Value, _: CallContext| async {
        Ok::<_, ToolError>(json!({"contents": []}))
    });
    handle.replace_tools(vec![read.read_only().unlisted()]).await;
    handle.connected().await;
    let template = ResourceTemplate { uri_template: "doc://{id}".into(), ..ResourceTemplate::default() };
    let readers =
        SourceReaders { resource: Some(ToolName::new("docs__resources-read").unwrap()), ..SourceReaders::default() };
    handle.replace_lists(SourceLists { templates: vec![template], readers, ..SourceLists::default() });
    handle
}

/// The head of a request of the legacy era in a session, or without one.
fn head(what: &str, session: &str) -> String {
    let session = if session.is_empty() { String::new() } else { format!("\r\nmcp-session-id: {session}") };
    format!(
        "{what} /mcp HTTP/1.1\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\nmcp-protocol-version: {LEGACY}{session}"
    )
}

/// Opens a session that is subscribed to a resource.
async fn open_session(server: &RunningServer, uri: &str) -> String {
    let opened = server.request(&head("POST", ""), initialize_message(LEGACY).to_string().as_bytes()).await;
    let session = opened.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect("a session").to_owned();
    let subscribe = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": uri}});
    let subscribed = server.request(&head("POST", &session), subscribe.to_string().as_bytes()).await;
    assert!(subscribed.starts_with("HTTP/1.1 200"), "{subscribed}");
    session
}

/// Opens the stream of a session, with a small buffer.
async fn open_stream(server: &RunningServer, session: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut tcp = socket.connect(server.address).await.unwrap();
    let request = format!("{}\r\nhost: localhost\r\n\r\n", head("GET", session));
    tcp.write_all(request.as_bytes()).await.unwrap();
    let mut begin = [0; 12];
    tcp.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200");
    tcp
}

/// The number of clients that listen.
async fn listeners(server: &RunningServer) -> usize {
    let page = server.request("GET /metrics HTTP/1.1", b"").await;
    let line = page.lines().find_map(|line| line.strip_prefix("toolhub_mcp_listeners ")).expect("the metric");
    line.parse().unwrap()
}

#[tokio::test]
async fn who_does_not_read_is_dropped_after_ten_seconds_and_harms_no_other() {
    let count = soak(20, 1_000);
    let mut settings = settings();
    settings.mcp.max_sessions_per_caller = count + 1;
    let server = start_server(settings).await;
    let source = add_source(&server.hub.hub).await;
    let uri = format!("doc://{}", "x".repeat(16 << 10));
    let mut unread = Vec::new();
    for _ in 0..count {
        let session = open_session(&server, &uri).await;
        unread.push(open_stream(&server, &session).await);
    }
    let session = open_session(&server, "doc://own").await;
    let mut reader = open_stream(&server, &session).await;
    assert_eq!(listeners(&server).await, count + 1);

    // More than the buffers of the system hold. A client that reads hears of each of its own meanwhile.
    let (mut slowest, filling) = (Duration::ZERO, Instant::now());
    for _ in 0..40 {
        source.resource_updated(&uri);
        let begun = Instant::now();
        source.resource_updated("doc://own");
        let mut received = String::new();
        while !received.contains("doc://own") {
            let mut part = [0; 1_024];
            let length = timeout(TEST_TIMEOUT, reader.read(&mut part)).await.expect("an event").unwrap();
            assert!(length > 0, "closed: {received}");
            received.push_str(&String::from_utf8_lossy(&part[..length]));
        }
        slowest = slowest.max(begun.elapsed());
        server.assert_echo().await;
    }
    tokio::time::pause();
    let blocked = Instant::now();
    let mut remaining = count + 1;
    while remaining > 1 {
        // Less than the timeout of other answers. The clock goes on by itself whenever the runtime waits for a socket.
        assert!(blocked.elapsed() < Duration::from_secs(25), "{remaining} listen after {:?}", blocked.elapsed());
        tokio::time::advance(Duration::from_millis(500)).await;
        remaining = listeners(&server).await;
        assert!(remaining == count + 1 || filling.elapsed() > Duration::from_secs(9), "dropped too early");
    }
    let dropped_after = blocked.elapsed();
    tokio::time::resume();
    println!(
        "{count} clients that do not read: dropped {dropped_after:.1?} after they blocked; the slowest event of another \
         one took {slowest:.1?}"
    );
    server.assert_echo().await;
    drop(unread);
}

#[tokio::test]
async fn streams_of_clients_that_listen_count_for_their_key() {
    let (key, text) = make_key("ann", "a", &[Scope::ToolsRead]);
    let mut settings = settings_with_keys([key]);
    settings.limits.connections = 8;
    let server = start_server(settings).await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    let params = json!({"notifications": {"toolsListChanged": true}, "_meta": meta});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}).to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {text}\r\ncontent-type: application/json\r\naccept: \
         application/json, text/event-stream\r\nmcp-protocol-version: {MODERN}\r\nmcp-method: subscriptions/listen\r\n\
         content-length: {}\r\n\r\n{message}",
        message.len()
    );
    let mut open = Vec::new();
    for _ in 0..5 {
        let mut tcp = server.connect().await;
        tcp.write_all(request.as_bytes()).await.unwrap();
        let mut received = String::new();
        while !received.contains("acknowledged") {
            let mut part = [0; 1_024];
            let length = timeout(TEST_TIMEOUT, tcp.read(&mut part)).await.expect("an answer").unwrap();
            assert!(length > 0, "closed: {received}");
            received.push_str(&String::from_utf8_lossy(&part[..length]));
        }
        open.push(tcp);
    }
    // Half of the places may be streams of one key: the oldest one ends.
    let mut rest = Vec::new();
    let mut oldest = open.remove(0);
    let ended = async {
        let mut part = [0; 1_024];
        while !rest.ends_with(b"0\r\n\r\n") {
            let length = oldest.read(&mut part).await.unwrap();
            assert!(length > 0, "{}", String::from_utf8_lossy(&rest));
            rest.extend_from_slice(&part[..length]);
        }
    };
    timeout(TEST_TIMEOUT, ended).await.expect("the oldest stream ends");
}

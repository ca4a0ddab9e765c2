//! Event streams of MCP clients: when they end, clients that do not read, and clients with too many.
//!
//! With `TOOLHUB_SOAK` set, 1,000 clients do not read.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use toolhub_core::{
    CallContext, Resource, ResourceTemplate, SourceHandle, SourceLists, SourceReaders, ToolError, ToolHub, ToolName,
    dynamic,
    testing::{TestSource, scripted},
};
use toolhub_server::{Scope, Server};
use toolhub_testkit::soak;

use crate::{
    support_api::{ApiFixture, api_fixture},
    support_listener::{
        RunningServer, TEST_TIMEOUT, make_key, read_to_end, settings, settings_with_keys, start_server,
    },
    support_mcp::{LEGACY, MODERN, McpClient, events, initialize_message},
};

/// A source with resources of any name, and one whose name, and so the messages about it, can be long.
async fn add_source(hub: &ToolHub, long: &str) -> SourceHandle {
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
    let resources = vec![Resource { uri: long.into(), ..Resource::default() }];
    handle.replace_lists(SourceLists { resources, templates: vec![template], readers, ..SourceLists::default() });
    handle
}

/// The head of a request of the legacy era in a session, or without one.
fn head(what: &str, session: &str) -> String {
    let session = if session.is_empty() { String::new() } else { format!("\r\nmcp-session-id: {session}") };
    format!(
        "{what} /mcp HTTP/1.1\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\nmcp-protocol-version: {LEGACY}{session}"
    )
}

async fn open_session(server: &RunningServer) -> String {
    let opened = server.request(&head("POST", ""), initialize_message(LEGACY).to_string().as_bytes()).await;
    opened.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect("a session").to_owned()
}

/// Opens a session that is subscribed to a resource.
async fn open_subscribed_session(server: &RunningServer, uri: &str) -> String {
    let session = open_session(server).await;
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

/// Listens without a session, with this header.
async fn open_listener(server: &RunningServer, header: &str) -> TcpStream {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    let params = json!({"notifications": {"toolsListChanged": true}, "_meta": meta});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}).to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\n{header}content-type: application/json\r\naccept: application/json, \
         text/event-stream\r\nmcp-protocol-version: {MODERN}\r\nmcp-method: subscriptions/listen\r\ncontent-length: \
         {}\r\n\r\n{message}",
        message.len()
    );
    let mut tcp = server.connect().await;
    tcp.write_all(request.as_bytes()).await.unwrap();
    timeout(TEST_TIMEOUT, read_until(&mut tcp, "acknowledged")).await.expect("an answer");
    tcp
}

/// Reads until a text was received.
async fn read_until(tcp: &mut TcpStream, text: &str) {
    let mut received = String::new();
    while !received.contains(text) {
        let mut part = [0; 1_024];
        let length = tcp.read(&mut part).await.unwrap();
        assert!(length > 0, "closed: {received}");
        received.push_str(&String::from_utf8_lossy(&part[..length]));
    }
}

/// Stops the clock until the value is dropped: it moves by `advance` only, also while the runtime waits for sockets. A test that hangs
/// gets its clock, and so its timeouts, back after a while.
#[expect(clippy::disallowed_methods, reason = "only a blocking task of tokio holds its paused clock")]
fn stop_clock() -> mpsc::Sender<()> {
    let (holder, dropped) = mpsc::channel();
    // A paused clock advances by itself whenever the runtime is idle, but not while a blocking task runs.
    tokio::task::spawn_blocking(move || dropped.recv_timeout(10 * TEST_TIMEOUT));
    tokio::time::pause();
    holder
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
    let uri = format!("doc://{}", "x".repeat(16 << 10));
    let source = add_source(&server.hub.hub, &uri).await;
    let mut unread = Vec::new();
    for _ in 0..count {
        let session = open_subscribed_session(&server, &uri).await;
        unread.push(open_stream(&server, &session).await);
    }
    let session = open_subscribed_session(&server, "doc://own").await;
    let mut reader = open_stream(&server, &session).await;
    assert_eq!(listeners(&server).await, count + 1);

    // From here on nothing depends on how fast the machine is.
    let _stopped = stop_clock();
    // More than the buffers of the system hold. A client that reads hears of each of its own meanwhile.
    for _ in 0..40 {
        source.resource_updated(&uri);
        source.resource_updated("doc://own");
        read_until(&mut reader, "doc://own").await;
        server.assert_echo().await;
    }
    let (mut remaining, mut waited, step) = (listeners(&server).await, Duration::ZERO, Duration::from_millis(500));
    assert_eq!(remaining, count + 1);
    while remaining > 1 {
        // Less than the timeout of other answers.
        assert!(waited < Duration::from_secs(25), "{remaining} listen after {waited:?}");
        tokio::time::advance(step).await;
        waited += step;
        remaining = listeners(&server).await;
        assert!(remaining == count + 1 || waited > Duration::from_secs(9), "dropped after {waited:?}");
    }
    println!("{count} clients that do not read: all dropped within {waited:.1?}");
    source.resource_updated("doc://own");
    read_until(&mut reader, "doc://own").await;
    server.assert_echo().await;
    drop(unread);
}

#[tokio::test]
async fn streams_of_clients_that_listen_count_for_their_key() {
    let (key, text) = make_key("ann", "a", &[Scope::ToolsRead]);
    let mut settings = settings_with_keys([key]);
    settings.limits.connections = 8;
    let server = start_server(settings).await;
    let header = format!("authorization: Bearer {text}\r\n");
    let mut open = Vec::new();
    for _ in 0..5 {
        open.push(open_listener(&server, &header).await);
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

#[tokio::test]
async fn streams_of_both_eras_end_when_the_server_stops() {
    let mut settings = settings();
    // Longer than the test waits: a stream that does not end by itself would hold up the server.
    settings.drain_timeout = 100 * TEST_TIMEOUT;
    let mut server = start_server(settings).await;
    let session = open_session(&server).await;
    let mut streams = [open_stream(&server, &session).await, open_listener(&server, "").await];
    assert_eq!(listeners(&server).await, 2);
    server.stop();
    for stream in &mut streams {
        let rest = read_to_end(stream).await;
        assert!(rest.ends_with("0\r\n\r\n"), "not a whole response: {rest}");
    }
    server.wait_stopped().await;
}

#[tokio::test(start_paused = true)]
async fn streams_of_both_eras_end_when_their_key_is_revoked() {
    let fixture = api_fixture().await;
    let (admin, admin_key) = make_key("admin", "main", &[Scope::Admin]);
    let router = Server::new(fixture.hub.clone(), fixture.store.clone(), settings_with_keys([admin])).router();
    let fixture = ApiFixture { router: router.clone(), ..fixture };
    let authorization = format!("Bearer {admin_key}");
    let as_admin = [("authorization", authorization.as_str())];
    for (number, (has_session, is_event_due)) in
        [(true, false), (true, true), (false, false), (false, true)].into_iter().enumerate()
    {
        let key = json!({"name": format!("key-{number}"), "scopes": ["tools:read"]});
        let key = fixture.request("POST", "/api/v1/keys", Some(key), &as_admin).await.expect_status(201);
        let mut client = McpClient::modern(&router, "/mcp").key(key["key"].as_str().unwrap());
        if has_session {
            client = client.initialize().await;
        }
        let mut stream = client.listen(&fixture, json!({"toolsListChanged": true})).await;
        let path = format!("/api/v1/keys/{}", key["id"].as_str().unwrap());
        fixture.request("DELETE", &path, None, &as_admin).await.expect_status(204);
        if is_event_due {
            fixture.hub.register(scripted(&format!("tool_{number}"), []).0).unwrap();
        }
        let ended = async {
            while let Some(chunk) = stream.next_chunk().await {
                assert!(events(&chunk).is_empty(), "{number}: {chunk}");
            }
        };
        // Without an event it is noticed when the next sign of life is due.
        timeout(Duration::from_secs(16), ended).await.unwrap_or_else(|_| panic!("{number}: the stream goes on"));
        assert_eq!(client.post(&client.message("tools/list", json!({}))).await.status, 401);
    }
}

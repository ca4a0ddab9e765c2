//! Clients that hold every connection, and others that are served all the same.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use toolhub_server::{Auth, Scope, Settings};
use toolhub_testkit::http2;

use crate::{
    support_http2,
    support_listener::{
        CALL_ECHO, CALL_SLOW, RunningServer, TEST_TIMEOUT, make_key, read_to_end, settings_with_keys, start_server,
    },
};

const MAX_CONNECTIONS: usize = 32;
/// More than the server has room for.
const HOSTILE_CONNECTIONS: usize = 100;

/// A server with few connections, and the keys of its clients.
struct Crowded {
    server: RunningServer,
    hostile_key: String,
    normal_key: String,
    admin_key: String,
}

async fn start(adjust: impl FnOnce(&mut Settings)) -> Crowded {
    let (hostile, hostile_key) = make_key("hostile", "main", &[Scope::ToolsRead, Scope::ToolsCall]);
    let (normal, normal_key) = make_key("normal", "main", &[Scope::ToolsRead, Scope::ToolsCall]);
    let (admin, admin_key) = make_key("admin", "main", &[Scope::Admin]);
    let mut settings = settings_with_keys([hostile, normal, admin]);
    settings.limits.connections = MAX_CONNECTIONS;
    // No timeout ends the attack.
    settings.limits.idle_timeout = Duration::from_secs(3600);
    settings.limits.body_timeout = Duration::from_secs(3600);
    adjust(&mut settings);
    Crowded { server: start_server(settings).await, hostile_key, normal_key, admin_key }
}

/// Connects from an address of this machine.
async fn connect_from(from: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    socket.connect(to).await.unwrap()
}

impl Crowded {
    /// Sends one request from an address; returns the response.
    async fn request_from(&self, from: &str, head: &str, key: Option<&str>, body: &str) -> String {
        let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        let length = body.len();
        let text =
            format!("{head}\r\nhost: localhost\r\n{key}connection: close\r\ncontent-length: {length}\r\n\r\n{body}");
        let mut tcp = connect_from(from, self.server.address).await;
        tcp.write_all(text.as_bytes()).await.unwrap();
        read_to_end(&mut tcp).await
    }

    async fn request(&self, head: &str, key: Option<&str>, body: &str) -> String {
        self.request_from("127.0.0.1", head, key, body).await
    }

    /// Opens hostile connections; other clients are served meanwhile and afterwards.
    async fn open_hostile<T>(&self, open: impl AsyncFn(usize) -> T) -> Vec<T> {
        let mut hostile = Vec::new();
        for number in 0..HOSTILE_CONNECTIONS {
            hostile.push(open(number).await);
            if number % 25 == 24 {
                self.assert_others_are_served().await;
            }
        }
        self.assert_others_are_served().await;
        hostile
    }

    /// Health checks, clients with another key, clients at another address and the administrator are served.
    async fn assert_others_are_served(&self) {
        for from in ["127.0.0.1", "127.0.0.2"] {
            for path in ["/livez", "/readyz"] {
                let response = self.request_from(from, &format!("GET {path} HTTP/1.1"), None, "").await;
                assert!(response.starts_with("HTTP/1.1 200"), "{from} {path}: {response}");
            }
            let response =
                self.request_from(from, CALL_ECHO, Some(&self.normal_key), r#"{"arguments":{"said":"hello"}}"#).await;
            assert!(response.starts_with("HTTP/1.1 200") && response.contains("hello"), "{from}: {response}");
        }
        let create = "POST /api/v1/keys HTTP/1.1\r\ncontent-type: application/json";
        let made = self.request(create, Some(&self.admin_key), r#"{"name":"leaked","scopes":["tools:read"]}"#).await;
        assert!(made.starts_with("HTTP/1.1 201"), "{made}");
        let id = made.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let revoked = self.request(&format!("DELETE /api/v1/keys/{id} HTTP/1.1"), Some(&self.admin_key), "").await;
        assert!(revoked.starts_with("HTTP/1.1 204"), "{revoked}");
    }

    fn with_key(head: &str, key: &str) -> String {
        format!("{head}\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n")
    }

    /// Opens an event stream with a key; returns it after its first event.
    async fn open_stream(&self, key: &str) -> TcpStream {
        let mut tcp = self.server.connect().await;
        let request = Self::with_key("GET /api/v1/events HTTP/1.1", key) + "\r\n";
        tcp.write_all(request.as_bytes()).await.unwrap();
        let mut received = String::new();
        while !received.contains("retry: ") {
            let mut part = [0; 1024];
            let length = timeout(TEST_TIMEOUT, tcp.read(&mut part)).await.expect("an event").unwrap();
            assert!(length > 0, "{received}");
            received += &String::from_utf8_lossy(&part[..length]);
        }
        tcp
    }
}

#[tokio::test]
async fn others_are_served_beside_http2_clients_that_grant_no_window() {
    let crowd = start(|_| {}).await;
    let open = async |number: usize| {
        let mut tcp = crowd.server.connect().await;
        // Some with a key, some without.
        let key = Some(crowd.hostile_key.as_str()).filter(|_| number.is_multiple_of(2));
        let path = if key.is_some() { "/api/v1/tools" } else { "/openapi.json" };
        let requests: Vec<u8> = (0..4).flat_map(|stream| http2::get(stream * 2 + 1, path, key)).collect();
        let _ = tcp.write_all(&[http2::preface(0), requests].concat()).await;
        tcp
    };
    drop(crowd.open_hostile(open).await);
}

#[tokio::test]
async fn others_are_served_beside_clients_that_read_none_of_their_answers() {
    let crowd = start(|_| {}).await;
    let requests = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(100);
    let open = async |_| {
        let mut tcp = crowd.server.connect().await;
        let _ = tcp.write_all(&requests).await;
        tcp
    };
    drop(crowd.open_hostile(open).await);
}

#[tokio::test]
async fn others_are_served_beside_the_event_streams_of_one_key() {
    let crowd = start(|_| {}).await;
    let hostile = crowd.open_hostile(async |_| crowd.open_stream(&crowd.hostile_key).await).await;
    let own = crowd.open_stream(&crowd.normal_key).await;
    crowd.assert_others_are_served().await;
    drop((hostile, own));
}

#[tokio::test]
async fn calls_of_one_key_leave_places_for_others_and_are_never_cut() {
    let crowd = start(|_| {}).await;
    let call = Crowded::with_key(CALL_SLOW, &crowd.hostile_key);
    let call = format!("{call}connection: close\r\ncontent-length: 2\r\n\r\n{{}}");
    let mut calls = Vec::new();
    for _ in 0..MAX_CONNECTIONS * 2 {
        let mut tcp = crowd.server.connect().await;
        tcp.write_all(call.as_bytes()).await.unwrap();
        calls.push(tokio::spawn(async move { read_to_end(&mut tcp).await }));
    }
    crowd.assert_others_are_served().await;
    let refused = crowd.request(CALL_SLOW, Some(&crowd.hostile_key), "{}").await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("\"overloaded\""), "{refused}");
    assert!(refused.contains("retry-after: 1"), "{refused}");
    crowd.server.hub.release.add_permits(MAX_CONNECTIONS * 2);
    let mut served = 0;
    for call in calls {
        let response = call.await.unwrap();
        served += usize::from(response.starts_with("HTTP/1.1 200"));
        assert!(response.starts_with("HTTP/1.1 200") || response.starts_with("HTTP/1.1 503"), "{response}");
    }
    assert_eq!(served, MAX_CONNECTIONS - MAX_CONNECTIONS * 3 / 16);
}

#[tokio::test]
async fn calls_of_one_tenant_with_many_keys_leave_places_for_another_tenant() {
    let keys = (0..MAX_CONNECTIONS).map(|n| make_key(&format!("key-{n}"), "hostile", &[Scope::ToolsCall]));
    let (settings, keys): (Vec<_>, Vec<_>) = keys.unzip();
    let crowd = start(|crowd| {
        let Auth::Keys(all) = &mut crowd.auth else { panic!("the server has keys") };
        all.extend(settings);
    })
    .await;
    let mut calls = tokio::task::JoinSet::new();
    for key in &keys {
        let call = format!("{}connection: close\r\ncontent-length: 2\r\n\r\n{{}}", Crowded::with_key(CALL_SLOW, key));
        let mut tcp = crowd.server.connect().await;
        tcp.write_all(call.as_bytes()).await.unwrap();
        calls.spawn(async move { read_to_end(&mut tcp).await });
    }
    // No call ends before it is released, so the first response is a refusal: the tenant has all it may have.
    let refused = calls.join_next().await.unwrap().unwrap();
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    crowd.assert_others_are_served().await;
    let refused = crowd.request(CALL_ECHO, Some(&keys[0]), "{}").await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("\"overloaded\""), "{refused}");
}

#[tokio::test]
async fn the_oldest_stream_of_a_key_ends_when_it_opens_too_many() {
    let crowd = start(|_| {}).await;
    let mut other = crowd.open_stream(&crowd.normal_key).await;
    let mut first = crowd.open_stream(&crowd.hostile_key).await;
    let mut streams = Vec::new();
    for _ in 1..MAX_CONNECTIONS / 2 {
        streams.push(crowd.open_stream(&crowd.hostile_key).await);
    }
    streams.push(crowd.open_stream(&crowd.hostile_key).await);
    // The end of a chunked body; the connection can be used again.
    let mut end = [0; 5];
    timeout(TEST_TIMEOUT, first.read_exact(&mut end)).await.expect("the first stream ends").unwrap();
    assert_eq!(&end, b"0\r\n\r\n");
    streams.push(other);
    for tcp in &mut streams {
        assert!(tcp.try_read(&mut end).is_err(), "the others are open");
    }
    other = streams.pop().unwrap();
    crowd.server.hub.release.add_permits(1);
    let called = crowd.request(CALL_SLOW, Some(&crowd.normal_key), "{}").await;
    assert!(called.starts_with("HTTP/1.1 200"), "{called}");
    let length = timeout(TEST_TIMEOUT, other.read(&mut end)).await.expect("an event of the call").unwrap();
    assert!(length > 0);
}

/// Checks that the server closes a connection on which these frames are sent, within the time for unread answers.
async fn check_unread(window: u32, frames: &[Vec<u8>]) {
    let crowd = start(|settings| settings.limits.body_timeout = Duration::from_millis(300)).await;
    let mut tcp = crowd.server.connect().await;
    tcp.write_all(&[&[http2::preface(window)][..], frames].concat().concat()).await.unwrap();
    timeout(TEST_TIMEOUT, support_http2::read_to_close(&mut tcp)).await.expect("it is closed");
    crowd.assert_others_are_served().await;
}

#[tokio::test]
async fn an_http2_answer_that_is_not_read_closes_the_connection_in_time() {
    use http2::{get, window_update};
    check_unread(0, &[get(1, "/openapi.json", None)]).await;
    check_unread(0, &[get(1, "/livez", None)]).await;
    // The first byte is read, and no more.
    check_unread(1, &[get(1, "/livez", None)]).await;
    check_unread(100_000, &[get(1, "/openapi.json", None)]).await;
    // One stream is read, the other is not.
    check_unread(0, &[get(1, "/livez", None), get(3, "/livez", None), window_update(3, 1000)]).await;
}

#[tokio::test]
async fn who_leaves_the_most_unread_loses_its_connections_when_answers_take_too_much_memory() {
    let crowd = start(|settings| settings.limits.held_bytes = 256 << 10).await;
    let get = |count: u32, key: &str| {
        let requests = (0..count).flat_map(|number| http2::get(number * 2 + 1, "/api/v1/tools", Some(key)));
        [http2::preface(0), requests.collect()].concat()
    };
    let mut small = crowd.server.connect().await;
    small.write_all(&get(1, &crowd.normal_key)).await.unwrap();
    let mut hostile = crowd.server.connect().await;
    hostile.write_all(&get(100, &crowd.hostile_key)).await.unwrap();
    timeout(TEST_TIMEOUT, support_http2::read_to_close(&mut hostile)).await.expect("it is closed");
    crowd.assert_others_are_served().await;
    let still_open = timeout(Duration::from_millis(100), support_http2::read_to_close(&mut small)).await;
    assert!(still_open.is_err(), "the other client keeps its connection");
}

//! `Client`: the headers it sends, and when it resends a request.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use toolhub_net::{Bytes, Client, DialError, Method, Request, SendError, Url};

use super::server::{Server, ok_response};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

fn client(url: &str) -> Client {
    Client::new(&Url::parse(url).unwrap(), CONNECT_TIMEOUT).unwrap()
}

fn request(method: Method) -> Request<Bytes> {
    let mut request = Request::new(Bytes::new());
    *request.method_mut() = method;
    *request.uri_mut() = "/path?query=1".parse().unwrap();
    request
}

/// Sends a request and reads the whole body.
async fn fetch_text(client: &Client, method: Method) -> Result<String, SendError> {
    let (mut response, mut body) = (client.send(request(method)).await?, Vec::new());
    while let Some(bytes) = response.chunk().await? {
        body.extend_from_slice(&bytes);
    }
    Ok(String::from_utf8(body).unwrap())
}

#[tokio::test]
async fn a_request_carries_host_agent_and_the_user_of_its_address() {
    let server = Server::start(|_, _| Some(ok_response("fine"))).await;
    let client = client(&format!("http://me:p%40ss@{}/elsewhere", server.address));
    assert_eq!(fetch_text(&client, Method::GET).await, Ok("fine".into()));
    let head = server.requests().remove(0);
    assert!(head.starts_with("GET /path?query=1 HTTP/1.1\r\n"), "{head}");
    for line in [&format!("host: {}", server.address), "accept: */*", "authorization: Basic bWU6cEBzcw=="] {
        assert!(head.contains(&format!("{line}\r\n")), "{head}");
    }
    assert!(head.contains(concat!("user-agent: toolhub/", env!("CARGO_PKG_VERSION"))), "{head}");
}

#[tokio::test]
async fn a_connection_that_was_closed_between_two_requests_is_noticed() {
    // The first connection serves one request; the second request on it finds it closed.
    let server =
        Server::start(|number, head| (number > 0 || !head.contains("x-second")).then(|| ok_response("fine"))).await;
    let client = client(&format!("http://{}", server.address));
    assert_eq!(fetch_text(&client, Method::GET).await, Ok("fine".into()));
    // The server reads this request and closes the connection. It was sent, so only an idempotent one is resent.
    let second = |method| {
        let mut request = request(method);
        request.headers_mut().insert("x-second", "1".parse().unwrap());
        request
    };
    assert!(client.send(second(Method::GET)).await.is_ok());
    assert_eq!(server.connections(), 2);
    let server =
        Server::start(|number, head| (number > 0 || !head.contains("x-second")).then(|| ok_response("fine"))).await;
    let client = self::client(&format!("http://{}", server.address));
    assert_eq!(fetch_text(&client, Method::GET).await, Ok("fine".into()));
    let failed = client.send(second(Method::POST)).await.unwrap_err();
    assert!(matches!(failed, SendError::Broken { .. }), "{failed}");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_unreachable() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let failed = fetch_text(&client(&format!("http://{address}")), Method::GET).await.unwrap_err();
    let SendError::Dial(DialError::Unreachable { failure, reason }) = failed else { panic!("{failed}") };
    assert_eq!(failure, format!("http://{address} cannot be reached"));
    assert!(reason.contains("refused"), "{reason}");
}

#[tokio::test]
async fn https_to_a_plain_http_port_is_a_failed_handshake_with_a_hint() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    });
    let failed = fetch_text(&client(&format!("https://{address}")), Method::GET).await.unwrap_err();
    let SendError::Dial(DialError::Tls { failure, reason }) = failed else { panic!("{failed}") };
    assert_eq!(failure, format!("TLS handshake failed with https://{address}"));
    assert!(reason.ends_with("(is this a plain HTTP port?)"), "{reason}");
}

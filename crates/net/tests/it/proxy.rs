//! Requests through a proxy. Environment variables are process-wide, so each test starts a process of its own.

use std::time::Duration;

use tokio::process::Command;
use toolhub_net::{Bytes, Client, Request, SendError, Url};

use super::server::{Server, ok_response};

/// Sends the request; started as a child process with proxy variables.
#[tokio::test]
#[ignore = "started by the other tests, with a proxy in its environment"]
async fn ask_through_a_proxy() {
    let url = Url::parse(&std::env::var("ASKED_URL").unwrap()).unwrap();
    let client = Client::new(&url, Duration::from_secs(5)).unwrap();
    let request = Request::builder().uri("/path").body(Bytes::new()).unwrap();
    match client.send(request).await {
        Ok(response) => println!("status {}", response.status.as_u16()),
        Err(SendError::Dial(error)) => println!("dial {error}"),
        Err(error) => println!("failed {error}"),
    }
}

/// Runs [`ask_through_a_proxy`] in a child process and returns its output.
async fn run_client(url: &str, variable: &str, proxy: String) -> String {
    let mut program = Command::new(std::env::current_exe().unwrap());
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        program.env_remove(name).env_remove(name.to_uppercase());
    }
    program.args(["--ignored", "--exact", "proxy::ask_through_a_proxy", "--nocapture"]);
    let output = program.env("ASKED_URL", url).env(variable, proxy).output().await.unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn plain_http_is_addressed_to_the_proxy() {
    let server = Server::start(|_, _| Some(ok_response(""))).await;
    let output = run_client("http://service.example", "http_proxy", format!("http://me:pass@{}", server.address)).await;
    assert!(output.contains("status 200"), "{output}");
    let head = server.requests().remove(0);
    assert!(head.starts_with("GET http://service.example/path HTTP/1.1\r\n"), "{head}");
    assert!(
        head.contains("host: service.example\r\n") && head.contains("proxy-authorization: Basic bWU6cGFzcw==\r\n"),
        "{head}"
    );
}

#[tokio::test]
async fn tls_goes_through_a_tunnel_and_a_proxy_that_refuses_one_is_named() {
    let refuse = |_: usize, _: &str| Some("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n".to_owned());
    let server = Server::start(refuse).await;
    let output = run_client("https://service.example", "HTTPS_PROXY", format!("http://{}", server.address)).await;
    assert!(
        output.contains("dial https://service.example cannot be reached through the proxy http://127.0.0.1"),
        "{output}"
    );
    assert!(output.contains("the proxy responded `HTTP/1.1 403 Forbidden` to CONNECT"), "{output}");
    let head = server.requests().remove(0);
    assert!(head.starts_with("CONNECT service.example:443 HTTP/1.1\r\nHost: service.example:443\r\n"), "{head}");
}

#[tokio::test]
async fn this_machine_is_reached_without_a_proxy() {
    let server = Server::start(|_, _| Some(ok_response(""))).await;
    let output = run_client("http://localhost:1", "ALL_PROXY", format!("http://{}", server.address)).await;
    assert!(output.contains("dial http://localhost:1 cannot be reached"), "{output}");
    assert_eq!(server.connections(), 0);
}

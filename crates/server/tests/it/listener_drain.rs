//! Shutdown: accepted requests are answered, new ones are not accepted.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use crate::support_listener::{CALL_SLOW, TEST_TIMEOUT, read_to_end, settings, start_server};

#[tokio::test]
async fn calls_accepted_before_the_stop_all_end_and_are_answered() {
    let mut server = start_server(settings()).await;
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let mut tcp = server.connect().await;
        let call = format!("{CALL_SLOW}\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{{}}");
        calls.spawn(async move {
            tcp.write_all(call.as_bytes()).await.unwrap();
            read_to_end(&mut tcp).await
        });
    }
    tokio::time::timeout(TEST_TIMEOUT, async {
        while server.hub.hub.running_calls() < 50 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("all calls run");
    let mut idle = server.connect().await;
    server.stop();
    // An idle connection is closed immediately, and no new one is accepted.
    assert_eq!(read_to_end(&mut idle).await, "");
    tokio::time::timeout(TEST_TIMEOUT, async {
        while TcpStream::connect(server.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the listener is closed");
    server.hub.release.add_permits(50);
    while let Some(response) = calls.join_next().await {
        let response = response.unwrap();
        assert!(response.starts_with("HTTP/1.1 200") && response.contains("done"), "{response}");
    }
    server.wait_stopped().await;
}

#[tokio::test]
async fn a_stop_has_an_end_even_if_a_call_has_none() {
    for is_closed_first in [false, true] {
        let mut settings = settings();
        (settings.drain_timeout, settings.close_before_cancel) = (Duration::from_millis(300), is_closed_first);
        let mut server = start_server(settings).await;
        let mut tcp = server.connect().await;
        let call = format!("{CALL_SLOW}\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{{}}");
        tcp.write_all(call.as_bytes()).await.unwrap();
        while server.hub.hub.running_calls() < 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.stop();
        let response = read_to_end(&mut tcp).await;
        assert_eq!(response.contains("cancelled"), !is_closed_first, "{response}");
        assert_eq!(response.is_empty(), is_closed_first, "{response}");
        server.wait_stopped().await;
    }
}

#[tokio::test]
async fn readyz_says_no_before_the_door_is_closed() {
    let mut settings = settings();
    settings.shutdown_notice = Duration::from_millis(500);
    let mut server = start_server(settings).await;
    assert!(server.request("GET /readyz HTTP/1.1", b"").await.starts_with("HTTP/1.1 200"));
    server.stop();
    let mut said_no = false;
    while let Ok(mut tcp) = TcpStream::connect(server.address).await {
        let _ = tcp.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
        let mut part = vec![0; 4096];
        let read = tcp.read(&mut part).await.unwrap_or(0);
        said_no |= part[..read].starts_with(b"HTTP/1.1 503");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(said_no);
    server.wait_stopped().await;
}

#[tokio::test]
async fn a_request_that_never_comes_whole_does_not_hold_the_stop_up() {
    let mut settings = settings();
    (settings.drain_timeout, settings.limits.header_timeout) = (20 * TEST_TIMEOUT, 20 * TEST_TIMEOUT);
    let mut server = start_server(settings).await;
    let mut partial = server.connect().await;
    partial.write_all(b"GET /api/v1/tools HTTP/1.1\r\nhost: loc").await.unwrap();
    // Its response shows that the partial request has been read.
    server.assert_echo().await;
    server.stop();
    assert_eq!(read_to_end(&mut partial).await, "");
    server.wait_stopped().await;
}

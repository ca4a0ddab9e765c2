//! How a server stops: what was accepted is answered, nothing new is.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use crate::support_listener::{CALL_SLOW, TEST_TIMEOUT, read_to_end, settings, start_server};

#[tokio::test]
async fn calls_accepted_before_the_stop_all_end_and_are_answered() {
    let mut house = start_server(settings()).await;
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let mut tcp = house.connect().await;
        let call = format!("{CALL_SLOW}\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{{}}");
        calls.spawn(async move {
            tcp.write_all(call.as_bytes()).await.unwrap();
            read_to_end(&mut tcp).await
        });
    }
    tokio::time::timeout(TEST_TIMEOUT, async {
        while house.hub.hub.running_calls() < 50 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("all calls run");
    let mut idle = house.connect().await;
    house.stop();
    // One on which nothing is asked is closed at once, and nobody new is let in.
    assert_eq!(read_to_end(&mut idle).await, "");
    tokio::time::timeout(TEST_TIMEOUT, async {
        while TcpStream::connect(house.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the door is closed");
    house.hub.release.add_permits(50);
    while let Some(answer) = calls.join_next().await {
        let answer = answer.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("done"), "{answer}");
    }
    house.wait_stopped().await;
}

#[tokio::test]
async fn a_stop_has_an_end_even_if_a_call_has_none() {
    let mut settings = settings();
    settings.drain_timeout = Duration::from_millis(300);
    let mut house = start_server(settings).await;
    let mut tcp = house.connect().await;
    let call = format!("{CALL_SLOW}\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{{}}");
    tcp.write_all(call.as_bytes()).await.unwrap();
    while house.hub.hub.running_calls() < 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    house.stop();
    let answer = read_to_end(&mut tcp).await;
    assert!(answer.contains("cancelled"), "{answer}");
    house.wait_stopped().await;
}

#[tokio::test]
async fn readyz_says_no_before_the_door_is_closed() {
    let mut settings = settings();
    settings.shutdown_notice = Duration::from_millis(500);
    let mut house = start_server(settings).await;
    assert!(house.request("GET /readyz HTTP/1.1", b"").await.starts_with("HTTP/1.1 200"));
    house.stop();
    let mut said_no = false;
    while let Ok(mut tcp) = TcpStream::connect(house.address).await {
        let _ = tcp.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
        let mut part = vec![0; 4096];
        let many = tcp.read(&mut part).await.unwrap_or(0);
        said_no |= part[..many].starts_with(b"HTTP/1.1 503");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(said_no);
    house.wait_stopped().await;
}

#[tokio::test]
async fn a_request_that_never_comes_whole_does_not_hold_the_stop_up() {
    let mut settings = settings();
    (settings.drain_timeout, settings.limits.header_timeout) = (20 * TEST_TIMEOUT, 20 * TEST_TIMEOUT);
    let mut house = start_server(settings).await;
    let mut half = house.connect().await;
    half.write_all(b"GET /api/v1/tools HTTP/1.1\r\nhost: loc").await.unwrap();
    // One that is answered shows that the other has been read.
    house.assert_echo().await;
    house.stop();
    assert_eq!(read_to_end(&mut half).await, "");
    house.wait_stopped().await;
}

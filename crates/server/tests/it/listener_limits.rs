//! Clients that are slow, send too much or stay idle, and one that is not affected by them.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};
use toolhub_server::Settings;
use toolhub_testkit::soak;

use crate::support_listener::{CALL_ECHO, TEST_TIMEOUT, read_to_end, settings, start_server};

/// Short timeouts, so that tests are fast.
fn short_timeouts() -> Settings {
    let mut settings = settings();
    settings.limits.header_timeout = Duration::from_millis(300);
    settings.limits.body_timeout = Duration::from_millis(400);
    settings.limits.idle_timeout = Duration::from_secs(2);
    settings
}

/// Sends a byte from time to time until the server closes; returns its response.
async fn trickle(mut tcp: TcpStream, begin: String) -> String {
    let drip = async {
        tcp.write_all(begin.as_bytes()).await.ok()?;
        let mut response = Vec::new();
        let mut part = [0; 1024];
        loop {
            tokio::select! {
                read = tcp.read(&mut part) => match read {
                    Ok(many @ 1..) => response.extend_from_slice(&part[..many]),
                    _ => return Some(String::from_utf8_lossy(&response).into_owned()),
                },
                () = tokio::time::sleep(Duration::from_millis(30)) => {
                    if tcp.write_all(b"x").await.is_err() {
                        return Some(String::from_utf8_lossy(&response).into_owned());
                    }
                }
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, drip).await.expect("it is shed").unwrap_or_default()
}

#[tokio::test]
async fn headers_that_trickle_are_cut_while_others_are_served() {
    let server = start_server(short_timeouts()).await;
    let mut slow = JoinSet::new();
    for _ in 0..100 {
        slow.spawn(trickle(server.connect().await, "GET /livez HTTP/1.1\r\nhost: localhost\r\nx-slow: ".into()));
        slow.spawn(trickle(server.connect().await, "PRI * HTTP/2.0\r\n\r\nSM".into()));
    }
    while !slow.is_empty() {
        server.assert_echo().await;
        while let Some(ended) = slow.try_join_next() {
            let response = ended.unwrap();
            assert!(!response.starts_with("HTTP/1.1 200"), "{response}");
        }
    }
}

#[tokio::test]
async fn bodies_that_trickle_are_cut_while_a_handler_reads_them() {
    let server = start_server(short_timeouts()).await;
    let mut slow = JoinSet::new();
    for way in ["content-length: 100000", "transfer-encoding: chunked"] {
        let begin = format!("{CALL_ECHO}\r\nhost: localhost\r\n{way}\r\n\r\n");
        // A chunk that has begun, and continues byte by byte.
        let begin = if way.contains("chunked") { format!("{begin}ffff\r\n") } else { begin };
        for _ in 0..50 {
            slow.spawn(trickle(server.connect().await, begin.clone()));
        }
    }
    let mut cut = 0;
    while !slow.is_empty() {
        server.assert_echo().await;
        while let Some(response) = slow.try_join_next() {
            let response = response.unwrap();
            assert!(response.starts_with("HTTP/1.1 408") && response.contains("too_slow"), "{response}");
            cut += 1;
        }
    }
    assert_eq!(cut, 100);
}

#[tokio::test]
async fn a_body_that_never_ends_is_answered_and_closed_and_costs_no_memory() {
    let server = start_server(settings()).await;
    let before = resident_bytes();
    let mut tcp = server.connect().await;
    let head = format!("{CALL_ECHO}\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n");
    tcp.write_all(head.as_bytes()).await.unwrap();
    let (mut from, mut to) = tcp.split();
    let chunk = [b"10000\r\n", &[b' '; 0x10000][..], b"\r\n"].concat();
    let send = async {
        let mut sent = 0_u64;
        while sent < 10 << 30 && to.write_all(&chunk).await.is_ok() {
            sent += 0x10000;
        }
        sent
    };
    let answered = async {
        let mut part = vec![0; 4096];
        let many = from.read(&mut part).await.unwrap_or(0);
        String::from_utf8_lossy(&part[..many]).into_owned()
    };
    let (sent, response) =
        tokio::time::timeout(TEST_TIMEOUT, futures_util::future::join(send, answered)).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 413") && response.contains("too_large"), "{response}");
    assert!(sent < 1 << 30, "it took {sent} bytes");
    assert!(resident_bytes().saturating_sub(before) < 64 << 20, "memory grew from {before} to {}", resident_bytes());
    server.assert_echo().await;
}

#[tokio::test]
async fn a_body_said_to_be_too_large_and_headers_without_end_are_refused() {
    let server = start_server(settings()).await;
    let response = server.request(CALL_ECHO, &vec![b' '; (2 << 20) + 1]).await;
    assert!(response.starts_with("HTTP/1.1 413"), "{response}");
    let mut tcp = server.connect().await;
    let head = format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx-long: {}\r\n\r\n", "x".repeat(64 << 10));
    let _ = tcp.write_all(head.as_bytes()).await;
    assert!(read_to_end(&mut tcp).await.starts_with("HTTP/1.1 431"));
    let mut tcp = server.connect().await;
    let many: String = (0..10_000).map(|n| format!("x-{n}: 1\r\n")).collect();
    let _ = tcp.write_all(format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{many}\r\n").as_bytes()).await;
    assert!(read_to_end(&mut tcp).await.starts_with("HTTP/1.1 431"));
    server.assert_echo().await;
}

#[tokio::test]
async fn json_nested_without_end_is_refused() {
    let server = start_server(settings()).await;
    for bomb in ["[".repeat(1 << 20), r#"{"arguments":"#.to_owned() + &r#"{"a":"#.repeat(100_000)] {
        let response = server.request(CALL_ECHO, bomb.as_bytes()).await;
        assert!(response.starts_with("HTTP/1.1 422") && response.contains("nested deeper"), "{response}");
    }
    server.assert_echo().await;
}

#[tokio::test]
async fn json_of_too_many_values_is_refused_and_the_limit_is_named() {
    let server = start_server(settings()).await;
    let wide = |unit: &str, count: usize| format!("{{\"arguments\":{{\"a\":[{}]}}}}", vec![unit; count].join(","));
    // The body, its arguments and the list count too.
    let response = server.request(CALL_ECHO, wide("0", 99_997).as_bytes()).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{}", &response[..500.min(response.len())]);
    for bomb in [wide("0", 99_998), wide("[0]", 450_000), wide(r#"{"a":0}"#, 230_000)] {
        let response = server.request(CALL_ECHO, bomb.as_bytes()).await;
        assert!(response.starts_with("HTTP/1.1 422") && response.contains("more than 100000 values"), "{response}");
    }
    server.assert_echo().await;
}

#[tokio::test]
async fn a_connection_on_which_nothing_is_asked_is_closed_in_time_and_one_in_use_is_not() {
    let mut settings = short_timeouts();
    settings.limits.idle_timeout = Duration::from_millis(600);
    let server = start_server(settings).await;
    let mut idle = server.connect().await;
    let mut used = server.connect().await;
    let mut working = server.connect().await;
    let call = format!("{}\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{{}}", crate::support_listener::CALL_SLOW);
    working.write_all(call.as_bytes()).await.unwrap();
    for _ in 0..10 {
        used.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut part = [0; 1024];
        assert!(used.read(&mut part).await.unwrap() > 0);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(read_to_end(&mut idle).await, "");
    assert_eq!(read_to_end(&mut used).await, "");
    // The call takes longer than the idle timeout, and its connection stays open.
    server.hub.release.add_permits(1);
    assert!(read_to_end(&mut working).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_normal_client_is_served_beside_very_many_idle_ones() {
    let mut settings = settings();
    settings.limits.connections = 200;
    let server = start_server(settings).await;
    let many = soak(1_000, 10_000);
    let mut idle = Vec::new();
    for number in 0..many {
        let Ok(mut tcp) = TcpStream::connect(server.address).await else {
            assert!(number > 400, "the limit of open files on this system is too low");
            break;
        };
        // Some send nothing, some send a partial request, some have sent one request.
        match number % 3 {
            0 => {}
            1 => drop(tcp.write_all(b"GET /livez HT").await),
            _ => drop(tcp.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await),
        }
        idle.push(tcp);
        if number % 50 == 0 {
            server.assert_echo().await;
        }
    }
    for _ in 0..100 {
        server.assert_echo().await;
    }
    drop(idle);
    server.assert_echo().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answers_is_cut() {
    let server = start_server(short_timeouts()).await;
    let mut tcp = server.connect().await;
    let asks = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(200);
    let flood = async { while tcp.write_all(&asks).await.is_ok() {} };
    tokio::time::timeout(TEST_TIMEOUT, flood).await.expect("it is cut");
    server.assert_echo().await;
}

/// Resident memory of this process, client and server together.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    pages * 4096
}

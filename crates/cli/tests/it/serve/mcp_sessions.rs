//! Sessions of MCP clients and the binary: more of them than there may be, and a server that is killed during their calls.
//!
//! With `TOOLHUB_SOAK` set, 50,000 sessions are asked for, with the memory of each checked, and the server is killed thirty times.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use toolhub_testkit::{TempFolder, is_soak, soak};

use super::{
    TOOLS,
    connection::{HttpConnection, HttpResponse},
    mcp_servers::QUIET,
    process::Process,
};

/// The most memory that a session may take, in bytes.
const MAX_SESSION_MEMORY: u64 = 40 << 10;

fn start(config: &str) -> (TempFolder, Process) {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", &format!("{TOOLS}{config}"));
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    (folder, server)
}

fn initialize(connection: &mut HttpConnection) -> HttpResponse {
    let info = json!({"name": "a client of ordinary length", "version": "1.2.3", "title": "A client"});
    let capabilities = json!({"roots": {"listChanged": true}, "sampling": {}, "elicitation": {"form": {}, "url": {}}});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info});
    let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    connection.send("POST /mcp", "accept: application/json, text/event-stream\r\n", &message.to_string())
}

/// Sends a request in a session; `None` if the connection ended before the response.
fn request(connection: &mut HttpConnection, session: &str, method: &str, params: &Value) -> Option<HttpResponse> {
    let headers = format!(
        "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2025-11-25\r\nmcp-session-id: {session}\r\n"
    );
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    connection.try_send("POST /mcp", &headers, &message.to_string())
}

#[test]
fn more_sessions_than_there_may_be_are_refused_and_each_takes_little_memory() {
    let (most, attempts) = soak((50, 200), (10_000, 50_000));
    let config =
        format!("[mcp_endpoint]\nmax_sessions = {most}\nmax_sessions_per_caller = 1000000\nsession_idle = \"1h\"\n");
    let (_folder, server) = start(&config);
    // What the first requests need is not the memory of a session.
    let first = initialize(&mut HttpConnection::connect(server.port)).header("mcp-session-id").expect("one").to_owned();
    for _ in 0..20 {
        let mut connection = HttpConnection::connect(server.port);
        assert_eq!(request(&mut connection, &first, "tools/list", &json!({})).expect("an answer").status, 200);
    }
    let before = server.memory();
    let (left, opened, refused) = (AtomicUsize::new(attempts), AtomicUsize::new(1), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut connection = HttpConnection::connect(server.port);
                while left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                    let response = initialize(&mut connection);
                    match response.status {
                        200 => opened.fetch_add(1, SeqCst),
                        503 => {
                            assert_eq!(response.header("retry-after"), Some("30"), "{}", response.text);
                            refused.fetch_add(1, SeqCst)
                        }
                        _ => panic!("{} {}", response.status, response.text),
                    };
                }
            });
        }
    });
    assert_eq!((opened.into_inner(), refused.into_inner()), (most, attempts + 1 - most));
    let mut connection = HttpConnection::connect(server.port);
    assert_eq!(request(&mut connection, &first, "tools/list", &json!({})).expect("an answer").status, 200);
    if let (true, Some(before), Some(after)) = (is_soak(), before, server.memory()) {
        let each = after.saturating_sub(before) / most as u64;
        println!(
            "{attempts} times initialize: {most} sessions; memory {} MiB before, {} MiB after, {each} bytes per session",
            before >> 20,
            after >> 20
        );
        assert!(each <= MAX_SESSION_MEMORY, "{each} bytes per session");
    }
}

/// All calls of the counter in the journal.
fn journal(connection: &mut HttpConnection) -> Vec<Value> {
    let (mut calls, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = connection.send(&format!("GET /api/v1/calls?tool=counter&limit=500{cursor}"), "", "").json();
        calls.extend(page["items"].as_array().expect("a list").iter().cloned());
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return calls,
        }
    }
}

#[test]
fn a_session_goes_on_after_the_server_was_killed_during_its_calls() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", TOOLS);
    let start = || Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let mut server = start();
    let opened = initialize(&mut HttpConnection::connect(server.port));
    let session = opened.header("mcp-session-id").expect("a session").to_owned();
    let (kills, last) = (soak(3, 30), Mutex::new(0_u64));
    for round in 0..=kills {
        let answered = AtomicUsize::new(0);
        let call = |connection: &mut HttpConnection| {
            let called = request(connection, &session, "tools/call", &json!({"name": "counter", "arguments": {}}))?;
            let text = called.json()["result"]["content"][0]["text"].as_str().map(str::to_owned);
            let count: u64 = text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{}", called.text));
            let mut last = last.lock().expect("the lock is not poisoned");
            // The call that was in flight at the kill may have been committed.
            let is_next = count == *last + 1 || answered.load(SeqCst) == 0 && round > 0 && count == *last + 2;
            assert!(is_next, "round {round}: {count} after {last}");
            *last = count;
            answered.fetch_add(1, SeqCst);
            Some(())
        };
        let mut connection = HttpConnection::connect(server.port);
        call(&mut connection).expect("the session goes on");
        let calls = journal(&mut connection);
        let count = calls.iter().filter(|call| call["status"] == "success").count() as u64;
        assert_eq!(count, *last.lock().expect("the lock is not poisoned"), "round {round}: {calls:?}");
        assert!(calls.iter().all(|call| call["threadId"] == calls[0]["threadId"] && call["status"] != "running"));
        if round == kills {
            let interrupted = calls.len() as u64 - count;
            println!(
                "{kills} kills during calls: {count} calls counted, {interrupted} interrupted, in one session and thread"
            );
            break;
        }
        thread::scope(|scope| {
            let caller = scope.spawn(|| while call(&mut connection).is_some() {});
            while answered.load(SeqCst) < 3 && !caller.is_finished() {
                thread::park_timeout(Duration::from_micros(200));
            }
            thread::park_timeout(Duration::from_micros(RandomState::new().hash_one(round) % 20_000));
            server.signal("KILL");
        });
        server.wait_for_exit();
        server = start();
    }
}

#[test]
fn a_reload_that_removes_a_toolset_is_announced_to_its_sessions_and_ends_their_streams() {
    let (folder, server) = start("[toolsets.basic]\ntools = [\"counter\"]\n");
    let mut connection = HttpConnection::connect(server.port);
    let session = initialize(&mut connection).header("mcp-session-id").expect("a session").to_owned();
    let stream = thread::scope(|scope| {
        let stream = scope.spawn(|| {
            let headers = format!(
                "accept: text/event-stream\r\nmcp-protocol-version: 2025-11-25\r\nmcp-session-id: {session}\r\n"
            );
            HttpConnection::connect(server.port).send("GET /mcp/basic", &headers, "")
        });
        while !connection.send("GET /metrics", "", "").text.contains("toolhub_mcp_listeners 1") {
            thread::yield_now();
        }
        folder.write("toolhub.toml", TOOLS);
        assert_eq!(connection.send("POST /api/v1/reload", "", "").json()["sections"], json!(["toolsets"]));
        stream.join().expect("the stream ends")
    });
    assert!(stream.status == 200 && stream.text.contains("notifications/tools/list_changed"), "{}", stream.text);
}

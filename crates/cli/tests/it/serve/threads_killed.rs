//! A killed server leaves no rows of an unknown thread.
//!
//! Clients make the first calls of new threads, in every way that creates one, until the server is killed. After the restart,
//! every thread that has calls, state or messages is known to every route, and can be deleted.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Mutex,
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use toolhub_testkit::{TempFolder, soak};

use super::{HttpConnection, Process, TOOLS};

const CONFIG: &str = r#"
[llm]
provider = "scripted"
model = "demo"
script = "script.toml"
[tools.approved]
builtin = "counter"
[[policy]]
tool = "approved"
decision = "ask"
"#;

const SCRIPT: &str =
    "[[turn]]\ncall = [{ tool = \"calculator\", args = { expression = \"1+1\" } }]\n[[turn]]\nsay = \"Two.\"\n";

const CLIENTS: usize = 4;

/// A random number below this limit.
fn random(limit: usize) -> usize {
    RandomState::new().hash_one(0) as usize % limit
}

/// The first request in a new thread, in one of the ways that create a thread.
fn first_request(number: usize, thread: &str) -> (String, &'static str, Value) {
    let expression = json!({"expression": "1+1"});
    let post = |path: String| format!("POST /api/v1/{path}");
    match number % 6 {
        0 => (post("tools/counter/calls".into()), "", json!({"arguments": {}, "threadId": thread})),
        1 => (post("tools/calculator/calls".into()), "", json!({"arguments": expression, "threadId": thread})),
        2 => {
            let function = json!({"name": "counter", "arguments": "{}"});
            let call = json!({"id": "a", "type": "function", "function": function});
            (
                post(format!("threads/{thread}/batches?format=openai")),
                "",
                json!({"role": "assistant", "tool_calls": [call]}),
            )
        }
        3 => {
            let what = format!("PUT /api/v1/state/contexts/{thread}%2Fnotes/business");
            (what, "", json!({"data": {"n": number}}))
        }
        4 => (
            post(format!("threads/{thread}/messages")),
            "prefer: respond-async\r\n",
            json!({"content": "one and one?"}),
        ),
        _ => {
            let body = json!({"arguments": {}, "threadId": thread});
            (post("tools/approved/calls".into()), "prefer: respond-async\r\n", body)
        }
    }
}

/// Makes first requests until the server is gone. Records each thread before its request.
fn use_new_threads(port: u16, name: &str, threads: &Mutex<Vec<String>>) {
    let Some(mut connection) = HttpConnection::try_connect(port) else { return };
    for number in random(6).. {
        let thread = format!("{name}-{number}");
        threads.lock().expect("the lock is not poisoned").push(thread.clone());
        let (what, headers, body) = first_request(number, &thread);
        let Some(response) = connection.try_send(&what, headers, &body.to_string()) else { return };
        assert!(response.status < 300, "{what}: {} {}", response.status, response.text);
    }
}

/// Whether the thread has any stored record; then every route must know it.
fn check_thread(connection: &mut HttpConnection, thread: &str) -> bool {
    let mut status = |what: String| connection.send(&what, "", "").status;
    let routes = [
        format!("GET /api/v1/threads/{thread}"),
        format!("GET /agents/{thread}/tool-states"),
        format!("GET /api/v1/threads/{thread}/messages"),
    ];
    let known: Vec<u16> = routes.map(&mut status).into();
    let mut count = |what: String| connection.send(&what, "", "").json()["items"].as_array().map_or(0, Vec::len);
    let calls = count(format!("GET /api/v1/calls?threadId={thread}"));
    let states = count(format!("GET /api/v1/state/contexts?threadId={thread}"));
    if calls + states == 0 && known == [404; 3] {
        return false;
    }
    assert_eq!(known, [200; 3], "{thread} has {calls} calls and {states} states");
    true
}

fn delete_thread(connection: &mut HttpConnection, thread: &str) {
    for _ in 0..2_000 {
        let response = connection.send(&format!("DELETE /api/v1/threads/{thread}"), "", "");
        if response.status != 409 {
            assert_eq!(response.status, 204, "{thread}: {}", response.text);
            return;
        }
        // A call that waits for approval is cancelled first; a run that was resumed after the restart ends by itself.
        let calls = connection.send(&format!("GET /api/v1/calls?threadId={thread}"), "", "").json();
        for call in
            calls["items"].as_array().expect("a list").iter().filter(|call| call["status"] == "awaiting_approval")
        {
            let id = call["id"].as_str().expect("a call has an id");
            connection.send(&format!("POST /api/v1/calls/{id}/cancel"), "", "");
        }
        thread::park_timeout(Duration::from_millis(5));
    }
    panic!("{thread} stays busy");
}

#[test]
fn a_thread_with_any_record_is_known_after_the_server_was_killed() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", &format!("{CONFIG}{TOOLS}"));
    folder.write("script.toml", SCRIPT);
    let start =
        || Process::start(folder.path(), &["serve", "--port", "0"], &[("TOOLHUB__TELEMETRY__LOG__LEVEL", "off")]);
    let (mut threads, mut found) = (Vec::<String>::new(), 0);
    for round in 0..=soak(10, 100) {
        let server = start();
        let mut connection = HttpConnection::connect(server.port);
        for thread in std::mem::take(&mut threads) {
            if check_thread(&mut connection, &thread) {
                found += 1;
                delete_thread(&mut connection, &thread);
                assert!(!check_thread(&mut connection, &thread), "{thread} is still there after its deletion");
            }
        }
        let used = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (used, port) = (&used, server.port);
                scope.spawn(move || use_new_threads(port, &format!("t{round}-{client}"), used));
            }
            // Requests are under way when the server is killed, and few enough to check all of their threads.
            while used.lock().expect("the lock is not poisoned").len() < CLIENTS + round {
                thread::park_timeout(Duration::from_micros(200));
            }
            thread::park_timeout(Duration::from_micros(random(30_000) as u64));
            server.signal("KILL");
        });
        server.wait_for_exit();
        threads = used.into_inner().expect("the lock is not poisoned");
    }
    assert!(found >= 20, "too few threads had records: {found}");
}

//! Agent runs survive a killed server, at any moment.
//!
//! A real server with tools that write their own ledger, synced before they answer. It is killed at random moments while several
//! threads have runs of several steps, and restarted. Invariants: every acknowledged message is in its thread once; every call
//! that the model requested has its result; no effect happens twice; every run ends.

use std::{
    collections::HashMap,
    fs,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use toolhub_testkit::{TempFolder, soak};

use super::{HttpConnection, Process};

/// Appends its argument to a file, and answers only after fsync.
const LEDGER: &str = r#"
import json, os, sys
asked = json.load(sys.stdin)["arguments"]
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(file, (json.dumps([sys.argv[2], asked["bill"]]) + "\n").encode())
os.fsync(file)
print(json.dumps({"paid": asked["bill"]}))
"#;

/// Three steps: pay, note, and an answer.
const SCRIPT: &str = r#"
[[turn]]
when = { user = "bill (?<bill>[a-z0-9-]+)" }
call = [{ tool = "pay", args = { bill = "$bill" } }]
[[turn]]
when = { tool_result = "pay" }
call = [{ tool = "note", args = { bill = "$bill" } }, { tool = "calculator", args = { expression = "1+1" } }]
[[turn]]
when = { tool_result = "note" }
say = "All is done for $bill."
"#;

const THREADS: usize = 4;

fn config_text(folder: &Path) -> String {
    let parameters = r#"{ type = "object", required = ["bill"], properties = { bill = { type = "string" } } }"#;
    let tool = |name: &str| {
        let ledger = folder.join("ledger").display().to_string();
        format!(
            "[tools.{name}]\ndescription = \"Keeps a ledger.\"\ncommand = \"python3\"\nargs = [\"ledger.py\", \"{ledger}\", \"{name}\"]\n\
             parameters = {parameters}\n"
        )
    };
    format!(
        "[llm]\nprovider = \"scripted\"\nmodel = \"demo\"\nscript = \"script.toml\"\n[tools.calculator]\nbuiltin = \"calculator\"\n{}{}",
        tool("pay"),
        tool("note")
    )
}

fn start_server(folder: &TempFolder) -> Process {
    let path = std::env::var("PATH").unwrap_or_default();
    let variables = [("TOOLHUB__TELEMETRY__LOG__LEVEL", "off"), ("PATH", &path)];
    Process::start(folder.path(), &["serve", "--port", "0"], &variables)
}

/// Sends messages in one thread until the server is gone, and records what was acknowledged.
fn send_messages(port: u16, thread: usize, round: usize, stop: &AtomicBool, acknowledged: &Mutex<Vec<String>>) {
    let Some(mut connection) = HttpConnection::try_connect(port) else { return };
    for at in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let bill = format!("{thread}-{round}-{at}");
        let body = json!({"content": format!("Please pay bill {bill}")}).to_string();
        let what = format!("POST /api/v1/threads/t{thread}/messages");
        let key = format!("idempotency-key: {bill}\r\nprefer: respond-async\r\n");
        let Some(response) = connection.try_send(&what, &key, &body) else { return };
        match response.status {
            202 | 200 => acknowledged.lock().expect("the lock is not poisoned").push(bill),
            409 => {}
            status => panic!("{status}: {}", response.text),
        }
        while !stop.load(Ordering::Relaxed) {
            let what = format!("GET /api/v1/threads/t{thread}/runs?limit=1");
            let Some(response) = connection.try_send(&what, "", "") else { return };
            let status = &response.json()["items"][0]["status"];
            if status == "completed" || status == "failed" {
                break;
            }
            thread::park_timeout(Duration::from_millis(3));
        }
    }
}

#[test]
fn a_server_that_is_killed_at_any_moment_loses_no_message_and_repeats_no_effect() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", &config_text(folder.path()));
    folder.write("ledger.py", LEDGER);
    folder.write("script.toml", SCRIPT);
    let acknowledged = Mutex::new(Vec::new());
    let kills = soak(30, 200);
    let mut chance = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..kills {
        let server = start_server(&folder);
        let stop = AtomicBool::new(false);
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        let life = Duration::from_millis(30 + chance % 470);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (stop, acknowledged, port) = (&stop, &acknowledged, server.port);
                scope.spawn(move || send_messages(port, thread, round, stop, acknowledged));
            }
            // Every other server lives until it has acknowledged something, however slow the machine is.
            let count = || acknowledged.lock().expect("the lock is not poisoned").len();
            let before = count();
            for _ in 0..20_000 {
                if round % 2 == 1 || count() > before {
                    break;
                }
                thread::park_timeout(Duration::from_millis(1));
            }
            thread::park_timeout(life);
            server.signal("KILL");
            stop.store(true, Ordering::Relaxed);
        });
        server.wait_for_exit();
    }
    let server = start_server(&folder);
    let mut connection = HttpConnection::connect(server.port);
    let acknowledged = acknowledged.into_inner().expect("the lock is not poisoned");
    assert!(acknowledged.len() >= kills / 2, "too little load: {} messages", acknowledged.len());
    let mut results = HashMap::new();
    for thread in 0..THREADS {
        wait_for_all_runs(&mut connection, thread);
        results.extend(check_conversation(&mut connection, thread, &acknowledged));
    }
    check_ledger(&folder, &mut connection, &results);
}

fn wait_for_all_runs(connection: &mut HttpConnection, thread: usize) {
    for _ in 0..3_000 {
        let runs = connection.send(&format!("GET /api/v1/threads/t{thread}/runs?limit=500"), "", "").json();
        let open = |run: &&Value| run["status"] != "completed" && run["status"] != "failed";
        if runs["items"].as_array().expect("a list").iter().find(open).is_none() {
            return;
        }
        thread::park_timeout(Duration::from_millis(20));
    }
    panic!("a run of the thread t{thread} does not end");
}

/// Every acknowledged message is there once, and every call has its result right after it. Returns the calls with results, and
/// whether each was a success.
fn check_conversation(
    connection: &mut HttpConnection,
    thread: usize,
    acknowledged: &[String],
) -> HashMap<String, bool> {
    let mut messages: Vec<Value> = Vec::new();
    let mut next = format!("/api/v1/threads/t{thread}/messages?limit=500");
    loop {
        let page = connection.send(&format!("GET {next}"), "", "").json();
        messages.extend(page["items"].as_array().expect("a list").iter().cloned());
        match page["nextCursor"].as_str() {
            Some(cursor) => next = format!("/api/v1/threads/t{thread}/messages?limit=500&cursor={cursor}"),
            None => break,
        }
    }
    let count = |bill: &str| {
        let ends = format!("bill {bill}");
        messages
            .iter()
            .filter(|it| it["role"] == "user" && it["content"].as_str().is_some_and(|text| text.ends_with(&ends)))
            .count()
    };
    for bill in acknowledged.iter().filter(|bill| bill.starts_with(&format!("{thread}-"))) {
        assert_eq!(count(bill), 1, "the message about {bill}");
    }
    for (at, message) in messages.iter().enumerate() {
        assert_eq!(message["seq"], at as u64 + 1, "no message is missing");
        let calls = message["calls"].as_array().map_or(0, Vec::len);
        if calls > 0 {
            let results = &messages.get(at + 1).unwrap_or(&Value::Null)["results"];
            let requested: Vec<&Value> =
                message["calls"].as_array().expect("a list").iter().map(|it| &it["id"]).collect();
            let returned: Vec<&Value> = results.as_array().expect("results").iter().map(|it| &it["id"]).collect();
            assert_eq!(requested, returned, "{message}");
        }
        if message["role"] == "tool" {
            assert!(messages[at - 1]["calls"].is_array(), "a result without its call: {message}");
        }
    }
    let results = messages.iter().filter_map(|message| message["results"].as_array()).flatten();
    results.filter_map(|it| Some((it["callId"].as_str()?.to_owned(), it["isError"] == false))).collect()
}

/// No effect happened twice, every successful call has one, and the model got the matching result.
fn check_ledger(folder: &TempFolder, connection: &mut HttpConnection, results: &HashMap<String, bool>) {
    let written = fs::read_to_string(folder.path().join("ledger")).expect("the ledger was written");
    let mut effects: HashMap<String, usize> = HashMap::new();
    for entry in written.lines() {
        *effects.entry(entry.to_owned()).or_default() += 1;
    }
    let twice: Vec<_> = effects.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "effects that happened twice: {twice:?}");
    let mut next = "/api/v1/calls?limit=500".to_owned();
    let mut done = 0;
    loop {
        let page = connection.send(&format!("GET {next}"), "", "").json();
        for call in page["items"].as_array().expect("a list") {
            assert!(call["status"] == "success" || call["status"] == "error", "an open call: {call}");
            let reported = results.get(call["id"].as_str().expect("an id"));
            assert_eq!(reported, Some(&(call["status"] == "success")), "the result the model got for {call}");
            if call["status"] == "success" && call["tool"] != "calculator" {
                let entry = json!([call["tool"], call["output"]["paid"]]).to_string().replace("\",\"", "\", \"");
                assert_eq!(effects.get(&entry), Some(&1), "{call}");
                done += 1;
            }
        }
        match page["nextCursor"].as_str() {
            Some(cursor) => next = format!("/api/v1/calls?limit=500&cursor={cursor}"),
            None => break,
        }
    }
    assert!(done > 0, "no call succeeded");
}

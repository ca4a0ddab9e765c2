//! Connections to real programs: `tests/mcp_servers/stdio_server.py` speaks both eras, and does wrong what its arguments and tools say.

mod calls;
mod endings;
mod handshakes;
mod http;
mod questions;

use std::{fs, sync::Arc, time::Duration};

use serde_json::{Value, json};
use toolhub_core::{InputKind, clock::SystemClock};

use super::{
    Connection, ConnectionOptions, Endpoint, Era, ListKind, ListSupport, Operation, OutgoingCall, ReportedChanges,
};
use crate::{
    command::Command,
    mcp::{
        accepted_input::AcceptedInput,
        log_ring::LogRing,
        wire::{RequestError, Update, UpdateReceiver, UpdateSender, updates},
    },
};

/// Generous timeout; only a failing test waits this long.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp_servers/stdio_server.py");

/// The server, with arguments that say what it does wrong.
fn server(flags: &[&str]) -> Command {
    let command = Command::new("python3").arg(SERVER).args(flags.iter().copied()).grace(Duration::from_millis(200));
    command.check().expect("these tests run real programs");
    command
}

/// A caller that answers everything.
const ALL: AcceptedInput = AcceptedInput { form: true, url: true, sampling: true, roots: true };

fn options() -> ConnectionOptions {
    ConnectionOptions {
        startup_timeout: WAIT_TIMEOUT,
        write_timeout: WAIT_TIMEOUT,
        max_message: 1024 * 1024,
        input: ALL,
        roots: Vec::new(),
        logs: LogRing::new(Arc::new(SystemClock)),
    }
}

/// A connection that must succeed.
async fn connect(command: Command, era: Era, options: &ConnectionOptions) -> Connection {
    Connection::open(&Endpoint::Stdio(command), era, options).await.unwrap_or_else(|error| panic!("{error}"))
}

/// A connection to a server of the legacy era.
async fn legacy() -> Connection {
    connect(server(&[]), Era::Legacy, &options()).await
}

const TOOL_CHANGES: ReportedChanges =
    ReportedChanges { tools: true, prompts: false, resources: false, uris: Vec::new() };

fn call(name: &str, arguments: Value, updates: UpdateSender) -> OutgoingCall {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    let operation = Operation::CallTool { name: name.into(), arguments };
    OutgoingCall { operation, traceparent: None, idempotency_key: None, input: None, updates }
}

/// The result of a call whose updates are not read. No wait is longer than [`WAIT_TIMEOUT`].
async fn result(connection: &Connection, name: &str, arguments: Value) -> Result<String, RequestError> {
    let call = connection.call(call(name, arguments, updates(AcceptedInput::default()).0));
    tokio::time::timeout(WAIT_TIMEOUT, call).await.unwrap_or_else(|_| panic!("`{name}` got no answer"))
}

/// The text of the result of a call that must succeed.
async fn text(connection: &Connection, name: &str, arguments: Value) -> String {
    content_text(&result(connection, name, arguments).await.unwrap_or_else(|error| panic!("{error:?}")))
}

#[track_caller]
fn content_text(result: &str) -> String {
    let result: Value = serde_json::from_str(result).unwrap();
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

/// What the server says about cancellations and answers.
async fn report(connection: &Connection) -> Value {
    serde_json::from_str(&text(connection, "report", json!({})).await).unwrap()
}

async fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let start = tokio::time::Instant::now();
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(start.elapsed() < WAIT_TIMEOUT, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a process has exited. A zombie counts as exited.
fn has_exited(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, None | Some(Some('Z' | 'X')))
}

/// Runs a test in a process of its own, because other tests of this process need memory too. Its peak must stay below 64 MiB
/// above the start.
#[track_caller]
fn in_bounded_memory(test: &str, run: impl Future<Output = ()>) {
    const IN_CHILD: &str = "TOOLHUB_TEST_IN_CHILD";
    if std::env::var_os(IN_CHILD).is_none() {
        let this = std::env::current_exe().unwrap();
        let name = format!("mcp::connection::tests::{test}");
        let run = std::process::Command::new(this).args(["--exact", &name]).env(IN_CHILD, "1").output().unwrap();
        let output = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && output.contains("1 passed"), "{output}");
        return;
    }
    let kibibytes = |name: &str| {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
    };
    let before = kibibytes("VmRSS:");
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run);
    let grown = kibibytes("VmHWM:").saturating_sub(before);
    assert!(grown < 64 * 1024, "memory grew by {grown} KiB");
}

/// Lets time pass at once.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

//! Command tools, with real programs in Python and Node.

mod examples;
mod invalid_output;
mod long_running;
mod misbehavior;
mod one_shot;
mod secrets;
mod startup;

use std::{fs, path::Path, time::Duration};

use serde_json::{Value, json};
use toolhub_connect::command::Command;
use toolhub_core::{HubBuilder, Outcome, ToolBuilder, ToolHub};
use toolhub_testkit::TempFolder;

/// Generous timeout; only a failing test waits this long.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A Python program.
fn python(code: &str) -> Command {
    require_installed(Command::new("python3").args(["-c", code]))
}

/// A Node program.
fn node(code: &str) -> Command {
    require_installed(Command::new("node").args(["-e", code]))
}

#[track_caller]
fn require_installed(command: Command) -> Command {
    if let Err(error) = command.check() {
        panic!("these tests run real programs: {error}");
    }
    command
}

/// A hub with these tools.
async fn hub<const N: usize>(tools: [ToolBuilder; N]) -> ToolHub {
    tools.into_iter().fold(ToolHub::builder(), HubBuilder::tool).build().await.unwrap()
}

/// Calls the tool `it` on a hub of its own.
async fn call(tool: ToolBuilder, arguments: Value) -> Outcome {
    hub([tool]).await.call("it", arguments).await
}

/// The output of a call that must succeed.
#[track_caller]
pub(crate) fn expect_output(outcome: Outcome) -> Value {
    assert!(outcome.is_success(), "{outcome:#?}");
    outcome.output
}

/// The operator text of a call that must fail.
#[track_caller]
fn expect_error(outcome: &Outcome) -> &str {
    &outcome.error.as_ref().unwrap_or_else(|| panic!("the call succeeded: {outcome:#?}")).operator
}

/// Waits until a file exists and ends with a newline; returns its lines.
async fn wait_for_lines(file: &Path) -> Vec<String> {
    wait_for(&format!("{} to be written", file.display()), || {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.ends_with('\n').then(|| text.lines().map(String::from).collect())
    })
    .await
}

/// Waits until a process has exited. A zombie counts as exited.
async fn wait_for_exit(pid: &str) {
    wait_for(&format!("process {pid} to exit"), || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start().chars().next());
        matches!(state, None | Some(Some('Z' | 'X'))).then_some(())
    })
    .await;
}

pub(crate) async fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let start = tokio::time::Instant::now();
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(start.elapsed() < WAIT_TIMEOUT, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Defines `sign`, which writes a marker file with the PID or other lines into the folder given as the first argument.
const MARKER_PRELUDE: &str = "
import json, os, sys, time, signal, subprocess
def sign(name, *lines):
    path = os.path.join(sys.argv[1], name)
    with open(path + '.new', 'w') as file:
        file.writelines(str(line) + '\\n' for line in lines or [os.getpid()])
    os.rename(path + '.new', path)
";

/// A Python program that can write marker files into a folder.
fn python_with_markers(folder: &TempFolder, code: &str) -> Command {
    python(&format!("{MARKER_PRELUDE}\n{code}")).arg(folder.text())
}

/// Arguments and state of an echoed request.
fn request_parts(echo: &Value) -> Value {
    json!({"arguments": echo["arguments"], "state": echo["state"]})
}

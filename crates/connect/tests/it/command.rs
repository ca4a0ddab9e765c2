//! Tools that are programs, with real programs in Python and Node.

mod examples;
mod long_running;
mod misbehavior;
mod one_shot;
mod secrets;
mod startup;
mod wrong;

use std::{fs, path::Path, time::Duration};

use serde_json::{Value, json};
use toolhub_connect::command::Command;
use toolhub_core::{HubBuilder, Outcome, ToolBuilder, ToolHub};
use toolhub_testkit::TempFolder;

/// Long enough for anything that is going to happen; only a test that fails waits for it.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A Python program.
fn python(code: &str) -> Command {
    require_installed(Command::new("python3").args(["-c", code]))
}

/// A program of Node.
fn node(code: &str) -> Command {
    require_installed(Command::new("node").args(["-e", code]))
}

#[track_caller]
fn require_installed(command: Command) -> Command {
    if let Err(missing) = command.check() {
        panic!("these tests run real programs: {missing}");
    }
    command
}

/// The hub of one test.
async fn hub<const N: usize>(tools: [ToolBuilder; N]) -> ToolHub {
    tools.into_iter().fold(ToolHub::builder(), HubBuilder::tool).build().await.unwrap()
}

/// Calls the tool `it` of a hub that has no other.
async fn call(tool: ToolBuilder, arguments: Value) -> Outcome {
    hub([tool]).await.call("it", arguments).await
}

/// The output of a call that must succeed.
#[track_caller]
pub(crate) fn expect_output(outcome: Outcome) -> Value {
    assert!(outcome.is_success(), "{outcome:#?}");
    outcome.output
}

/// What operators read about a call that must fail.
#[track_caller]
fn wrong(outcome: &Outcome) -> &str {
    &outcome.error.as_ref().unwrap_or_else(|| panic!("it succeeded: {outcome:#?}")).operator
}

/// Waits until a file is there and holds whole lines; answers them.
async fn wait_for_lines(file: &Path) -> Vec<String> {
    wait_for(&format!("{} is written", file.display()), || {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.ends_with('\n').then(|| text.lines().map(String::from).collect())
    })
    .await
}

/// Waits until a process is gone. One that nobody has waited for yet is.
async fn wait_for_exit(pid: &str) {
    wait_for(&format!("process {pid} is gone"), || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start().chars().next());
        matches!(state, None | Some(Some('Z' | 'X'))).then_some(())
    })
    .await;
}

async fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let began = tokio::time::Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(began.elapsed() < WAIT_TIMEOUT, "still waiting: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Writes its number into a file of the folder in its first argument, for the test to see.
const MARKER_PRELUDE: &str = "
import json, os, sys, time, signal, subprocess
def sign(name, *lines):
    path = os.path.join(sys.argv[1], name)
    with open(path + '.new', 'w') as file:
        file.writelines(str(line) + '\\n' for line in lines or [os.getpid()])
    os.rename(path + '.new', path)
";

/// A Python program that can give signs in a folder.
fn python_with_markers(folder: &TempFolder, code: &str) -> Command {
    python(&format!("{MARKER_PRELUDE}\n{code}")).arg(folder.text())
}

/// The echo of everything a program was asked, for both sorts of tools.
fn request_parts(echo: &Value) -> Value {
    json!({"arguments": echo["arguments"], "state": echo["state"]})
}

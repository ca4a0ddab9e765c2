//! The baseline: the same program, spawned directly. It gets the same request, and its response is parsed as JSON.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::SED_ARGS;

fn spawn_sed() -> Child {
    let mut command = Command::new("sed");
    command.args(SED_ARGS).env_clear().envs(std::env::var("PATH").map(|path| ("PATH", path)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
}

fn request() -> String {
    let call = json!({"id": "01890a5d-ac96-774b-bcce-b302099a8057", "thread": "bench"});
    format!("{}\n", json!({"id": 1, "arguments": {"text": "hello"}, "state": {}, "call": call}))
}

fn check_response(response: &[u8]) {
    let response: Value = serde_json::from_slice(response).unwrap();
    assert_eq!(response["result"]["text"], "hello");
}

/// Spawns the program, sends one request, and waits for the exit.
pub(crate) async fn run_once() {
    let mut child = spawn_sed();
    child.stdin.take().unwrap().write_all(request().as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success());
    check_response(&output.stdout);
}

/// A long-running process.
pub(crate) struct PersistentProcess {
    _child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl PersistentProcess {
    pub(crate) fn start() -> Self {
        let mut child = spawn_sed();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { _child: child, stdin, stdout: BufReader::new(stdout).lines() }
    }

    pub(crate) async fn round_trip(&mut self) {
        self.stdin.write_all(request().as_bytes()).await.unwrap();
        check_response(self.stdout.next_line().await.unwrap().unwrap().as_bytes());
    }
}

//! The neighbour: the same program with nothing around it. It is asked the same, and its answer is read as JSON.

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

fn check_response(answer: &[u8]) {
    let answer: Value = serde_json::from_slice(answer).unwrap();
    assert_eq!(answer["result"]["text"], "hello");
}

/// Starts it, asks it once, waits for its end.
pub(crate) async fn run_once() {
    let mut child = spawn_sed();
    child.stdin.take().unwrap().write_all(request().as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success());
    check_response(&output.stdout);
}

/// One that lives.
pub(crate) struct PersistentProcess {
    _child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl PersistentProcess {
    pub(crate) fn start() -> Self {
        let mut child = spawn_sed();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { _child: child, stdin: to, stdout: BufReader::new(from).lines() }
    }

    pub(crate) async fn round_trip(&mut self) {
        self.stdin.write_all(request().as_bytes()).await.unwrap();
        check_response(self.stdout.next_line().await.unwrap().unwrap().as_bytes());
    }
}

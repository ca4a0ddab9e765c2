//! The neighbour: the same program with nothing around it. It is asked the same, and its answer is read as JSON.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::ANSWER;

fn start() -> Child {
    let mut command = Command::new("sed");
    command.args(ANSWER).env_clear().envs(std::env::var("PATH").map(|path| ("PATH", path)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
}

fn request() -> String {
    let call = json!({"id": "01890a5d-ac96-774b-bcce-b302099a8057", "thread": "bench"});
    format!("{}\n", json!({"id": 1, "arguments": {"text": "hello"}, "state": {}, "call": call}))
}

fn look(answer: &[u8]) {
    let answer: Value = serde_json::from_slice(answer).unwrap();
    assert_eq!(answer["result"]["text"], "hello");
}

/// Starts it, asks it once, waits for its end.
pub(crate) async fn once() {
    let mut child = start();
    child.stdin.take().unwrap().write_all(request().as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success());
    look(&output.stdout);
}

/// One that lives.
pub(crate) struct Line {
    _child: Child,
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
}

impl Line {
    pub(crate) fn start() -> Self {
        let mut child = start();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { _child: child, to, from: BufReader::new(from).lines() }
    }

    pub(crate) async fn ask(&mut self) {
        self.to.write_all(request().as_bytes()).await.unwrap();
        look(self.from.next_line().await.unwrap().unwrap().as_bytes());
    }
}

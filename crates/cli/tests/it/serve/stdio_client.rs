//! An MCP client that runs `toolhub mcp serve --stdio` and speaks with it over pipes.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread::JoinHandle,
    time::Duration,
};

use serde_json::{Value, json};

/// How long a message may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a test listens for a message that may not come.
const SOON: Duration = Duration::from_secs(2);

/// A port that is free now.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("it has an address").port()
}

pub(super) struct StdioClient {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    err: Option<JoinHandle<String>>,
    next_id: u64,
    /// Members of `_meta` of all requests.
    meta: Value,
    /// Messages that are not the answer to the last request.
    pub(super) other: Vec<Value>,
}

impl StdioClient {
    pub(super) fn start(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolhub"));
        command.args(["mcp", "serve", "--stdio"]).args(arguments).current_dir(folder).env_clear().env("HOME", folder);
        command.env("TMPDIR", folder).envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary can be started");
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().expect("its stdout is ours"));
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut stderr = child.stderr.take().expect("its stderr is ours");
        let err = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let stdin = child.stdin.take();
        Self { child, stdin, lines, err: Some(err), next_id: 1, meta: json!({}), other: Vec::new() }
    }

    /// A client with a session of the legacy era.
    pub(super) fn legacy(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut client = Self::start(folder, arguments, variables);
        let info = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": info});
        let answer = client.request("initialize", params);
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    /// A client of the modern era.
    pub(super) fn modern(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut client = Self::start(folder, arguments, variables);
        let info = json!({"name": "test", "version": "1"});
        client.meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": info, "io.modelcontextprotocol/clientCapabilities": {}});
        let answer = client.request("server/discover", json!({}));
        assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
        client
    }

    pub(super) fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it is open");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("it reads");
    }

    pub(super) fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string());
    }

    /// The next message; panics if it is not JSON-RPC.
    pub(super) fn receive(&mut self) -> Value {
        let line = match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("no message within {PATIENCE:?}"),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("it ended: {}", self.err.take().and_then(|err| err.join().ok()).unwrap_or_default())
            }
        };
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        message
    }

    /// Sends a request and returns its id.
    pub(super) fn begin(&mut self, method: &str, mut params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        for (name, value) in self.meta.as_object().into_iter().flatten() {
            params["_meta"][name] = value.clone();
        }
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// The answer to a request, which may have arrived before. Other messages are kept.
    pub(super) fn answer(&mut self, id: u64) -> Value {
        let is_answer = |message: &Value| message["id"] == id && message.get("method").is_none();
        if let Some(index) = self.other.iter().position(is_answer) {
            return self.other.remove(index);
        }
        loop {
            let message = self.receive();
            if is_answer(&message) {
                return message;
            }
            self.other.push(message);
        }
    }

    pub(super) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer(id)
    }

    /// Calls a tool and returns its answer.
    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// The text of a successful call.
    pub(super) fn text(&mut self, tool: &str, arguments: &Value) -> String {
        let answer = self.call(tool, arguments);
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        answer["result"]["content"][0]["text"].as_str().expect("a text").to_owned()
    }

    /// Waits for a notification.
    pub(super) fn wait_for(&mut self, method: &str) -> Value {
        if let Some(at) = self.other.iter().position(|message| message["method"] == method) {
            return self.other.remove(at);
        }
        loop {
            let message = self.receive();
            if message["method"] == method {
                return message;
            }
            self.other.push(message);
        }
    }

    /// Whether a notification arrives soon.
    pub(super) fn hears(&mut self, method: &str) -> bool {
        while let Ok(line) = self.lines.recv_timeout(SOON) {
            let message: Value = serde_json::from_str(&line).expect("JSON");
            if message["method"] == method {
                return true;
            }
            self.other.push(message);
        }
        false
    }

    /// Its process id.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("kill can be run").success());
    }

    /// Closes stdin and waits for the exit; returns the exit code, the messages that were not read, and stderr.
    pub(super) fn finish(mut self) -> (Option<i32>, Vec<String>, String) {
        self.stdin = None;
        let status = self.child.wait().expect("it ends");
        let err = self.err.take().and_then(|err| err.join().ok()).unwrap_or_default();
        (status.code(), self.lines.iter().collect(), err)
    }
}

impl Drop for StdioClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

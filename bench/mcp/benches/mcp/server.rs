//! A minimal MCP server over stdio or HTTP, in a process of its own: this program, started with an environment variable.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use axum::{Json, Router, http::StatusCode, response::IntoResponse, routing::post};
use serde_json::{Value, json};

/// Says which server this process is.
pub(crate) const VARIABLE: &str = "TOOLHUB_BENCH_MCP_SERVER";
/// How many tools it has, if more than one.
pub(crate) const TOOLS_VARIABLE: &str = "TOOLHUB_BENCH_MCP_TOOLS";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Stdio,
    Http,
}

/// A server that clients start themselves (stdio), or one that runs until this is dropped (HTTP).
pub(crate) struct Server {
    pub(crate) transport: Transport,
    pub(crate) program: String,
    process: Option<(Child, u16)>,
}

impl Server {
    pub(crate) fn start(transport: Transport) -> Self {
        let program: PathBuf = env::current_exe().unwrap();
        let process = (transport == Transport::Http).then(|| {
            let mut process = Command::new(&program).env(VARIABLE, "http").stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
            (process, line.trim().parse().unwrap())
        });
        Self { transport, program: program.to_string_lossy().into_owned(), process }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.process.as_ref().unwrap().1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((process, _)) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Runs the server if this process is to be one.
pub(crate) fn run_if_requested() -> bool {
    match env::var(VARIABLE).as_deref() {
        Ok("stdio") => serve_stdio(|_| {}),
        Ok("flood") => serve_stdio(flood),
        Ok("silent") => std::io::stdin().lock().lines().for_each(drop),
        Ok("http") => {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(serve_http());
        }
        _ => return false,
    }
    true
}

/// Answers requests; `before_call` sees each call first.
fn serve_stdio(before_call: fn(&Value)) {
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if message["method"] == "tools/call" {
            before_call(&message);
        }
        if let Some(answer) = answer(&message) {
            write(&answer);
        }
    }
}

fn write(message: &Value) {
    let mut output = std::io::stdout().lock();
    // A client that is gone ends this process.
    if writeln!(output, "{message}").and_then(|()| output.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Sends notifications until the client is gone.
fn flood(call: &Value) {
    let token = &call["params"]["_meta"]["progressToken"];
    for number in 0_u64.. {
        write(
            &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": number}}),
        );
        write(
            &json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x".repeat(200)}}),
        );
        write(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
    }
}

async fn serve_http() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    let handler = post(|Json(message): Json<Value>| async move {
        match answer(&message) {
            Some(answer) => Json(answer).into_response(),
            None => StatusCode::ACCEPTED.into_response(),
        }
    });
    axum::serve(listener, Router::new().route("/mcp", handler)).await.unwrap();
}

fn answer(message: &Value) -> Option<Value> {
    let id = message.get("id")?;
    let result = match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "bench", "version": "1"},
        }),
        "tools/list" => {
            let more = env::var(TOOLS_VARIABLE).map_or(0, |number| number.parse().unwrap());
            let names = std::iter::once("echo".to_owned()).chain((1..more).map(|number| format!("tool{number}")));
            let tools = names.map(|name| {
                json!({
                    "name": name, "annotations": {"readOnlyHint": true}, "description": "Returns its argument.",
                    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
                })
            });
            json!({"tools": tools.collect::<Vec<_>>()})
        }
        "tools/call" => json!({"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}),
        _ => json!({}),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

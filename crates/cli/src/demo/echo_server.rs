//! `demo-mcp-server`: a small MCP server on stdin and stdout, for the tool `echo` of the demo. The hub starts it; no help lists it.
//!
//! In: JSON-RPC messages, one per line, of either protocol era. Out: their responses, until stdin is closed. It keeps nothing.

use std::{
    io::{self, BufRead, Write},
    process::ExitCode,
};

use serde_json::{Value, json};

/// The first argument that starts the server.
pub(super) const COMMAND: &str = "demo-mcp-server";

/// What the server says on stderr when it starts, before its process id.
pub(super) const STARTED: &str = "the MCP server of the demo is process ";

/// Serves if the arguments of this process ask for it. Checked before anything else starts, because the hub waits for the server.
pub(crate) fn run_if_requested() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != COMMAND || arguments.next().is_some() {
        return None;
    }
    eprintln!("{STARTED}{}", std::process::id());
    // A closed pipe is the end.
    let _ = serve(io::stdin().lock(), io::stdout().lock());
    Some(ExitCode::SUCCESS)
}

fn serve(input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    for line in input.lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else { continue };
        // A message without an id is a notification.
        let Some(id) = message.get("id") else { continue };
        let mut response = json!({"jsonrpc": "2.0", "id": id});
        match answer(message["method"].as_str().unwrap_or_default(), &message["params"]) {
            Ok(result) => response["result"] = result,
            Err((code, message)) => response["error"] = json!({"code": code, "message": message}),
        }
        writeln!(output, "{response}")?;
        output.flush()?;
    }
    Ok(())
}

fn answer(method: &str, params: &Value) -> Result<Value, (i32, &'static str)> {
    let info = json!({"name": "toolhub-demo", "version": env!("CARGO_PKG_VERSION")});
    match method {
        // Up to 2025-11-25.
        "initialize" => Ok(json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})),
        "ping" => Ok(json!({})),
        // Since 2026-07-28.
        "server/discover" => Ok(json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
            "ttlMs": 3_600_000, "cacheScope": "public", "_meta": {"io.modelcontextprotocol/serverInfo": info},
        })),
        "tools/list" => Ok(json!({
            "resultType": "complete", "tools": [echo_definition()], "ttlMs": 3_600_000, "cacheScope": "public",
        })),
        "tools/call" if params["name"] == "echo" => match params["arguments"]["text"].as_str() {
            Some(text) => Ok(json!({"resultType": "complete", "content": [{"type": "text", "text": text}]})),
            None => Err((-32602, "`text` must be a string")),
        },
        "tools/call" => Err((-32602, "unknown tool")),
        _ => Err((-32601, "method not found")),
    }
}

fn echo_definition() -> Value {
    json!({
        "name": "echo",
        "description": "Repeat a text. It comes from an MCP server, a process of its own.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "The text."}},
            "required": ["text"],
        },
        "annotations": {"readOnlyHint": true, "openWorldHint": false},
    })
}

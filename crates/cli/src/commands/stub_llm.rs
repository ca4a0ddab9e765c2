//! `stub-llm`: a model that says what a script says, for demos and tests without a key.
//!
//! In: a script and a port. Out: its address, then a line on stderr for each request, until it is told to stop. What is said to what, and
//! in which words, the library decides.

use std::{io::Read, sync::Arc};

use serde_json::json;
use tokio::net::TcpListener;
use toolhub::agent::{Script, Stub};

use crate::{exit::Exit, failure::Failure, serve::ShutdownSignals, session::Session};

/// The name of the script that is part of the binary.
const DEMO: &str = "builtin:demo";

/// Serve a scripted model that speaks as OpenAI and Anthropic do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Give clients the address it prints and any key. How scripts are written: docs/stub-llm.md")]
pub(crate) struct StubLlm {
    /// The script: a file, `-` for stdin, or `builtin:demo`
    #[arg(long, value_name = "FILE", default_value = DEMO)]
    script: String,
    /// The port; 0 lets the system choose
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
}

pub(crate) async fn run(session: &Session, stub: StubLlm) -> Result<Exit, Failure> {
    let script = load_script(&stub.script)?;
    // From here on a signal is an end in order, not a death.
    let mut signals = ShutdownSignals::listen().map_err(|error| Failure::unexpected(error.to_string()))?;
    let listener = TcpListener::bind(("127.0.0.1", stub.port)).await.map_err(|error| {
        Failure::new("unreachable", format!("port {} cannot be listened on: {error}", stub.port))
            .help("leave --port out, and the system chooses a free one")
    })?;
    let show = session.printer.clone();
    let tell = Arc::new(move |line: &str| show.note(line));
    let stub = Stub::serve_on(script, listener, Some(tell)).map_err(|error| Failure::unexpected(error.to_string()))?;
    if session.printer.json {
        session.printer.print_json(&json!({ "url": stub.base_url() }).to_string());
    } else {
        session.printer.print(&stub.base_url());
    }
    session.printer.note("a scripted model for clients of OpenAI and Anthropic; Ctrl-C stops it");
    signals.next().await;
    Ok(Exit::Success)
}

fn load_script(name: &str) -> Result<Script, Failure> {
    if name == DEMO {
        return Ok(Script::demo());
    }
    if name.starts_with("builtin:") {
        return Err(Failure::usage(format!("there is no script `{name}`")).help(format!("use --script {DEMO}")));
    }
    let mut text = String::new();
    let read = match name {
        "-" => std::io::stdin().read_to_string(&mut text).map(drop),
        file => std::fs::read_to_string(file).map(|read| text = read),
    };
    let called = if name == "-" { "on stdin" } else { name };
    read.map_err(|error| Failure::usage(format!("the script {called} cannot be read: {error}")))?;
    Script::parse(&text).map_err(|error| {
        let mut failure = Failure::usage(format!("the script {called} makes no sense"));
        failure.field_errors.extend(error.problems.into_iter().map(|problem| {
            let help = problem.help.map(|help| format!("; {help}")).unwrap_or_default();
            (format!("line {}", problem.line), format!("{}{help}", problem.message))
        }));
        failure.see_also("see", "docs/stub-llm.md")
    })
}

//! `stub-llm`: serves a scripted model, for demos and tests without an API key.
//!
//! In: a script and a port. Out: its URL on stdout, then one line per request on stderr, until a stop signal. The library implements
//! the model.

use std::{io::Read, sync::Arc};

use serde_json::json;
use tokio::net::TcpListener;
use toolhub::agent::{Script, Stub};

use crate::{config::DEMO_SCRIPT, exit::Exit, failure::Failure, serve::ShutdownSignals, session::Session};

/// Serve a scripted model that implements the OpenAI and Anthropic APIs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Point clients at the URL it prints, with any API key. Script format: docs/stub-llm.md")]
pub(crate) struct StubLlm {
    /// Script: a file, `-` for stdin, or `builtin:demo`
    #[arg(long, value_name = "FILE", default_value = DEMO_SCRIPT)]
    script: String,
    /// Port; 0 lets the system choose
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
}

pub(crate) async fn run(session: &Session, stub: StubLlm) -> Result<Exit, Failure> {
    let script = load_script(&stub.script)?;
    // From here on a signal stops the server gracefully instead of killing the process.
    let mut signals = ShutdownSignals::listen().map_err(|error| Failure::unexpected(error.to_string()))?;
    let listener = TcpListener::bind(("127.0.0.1", stub.port)).await.map_err(|error| {
        Failure::new("unreachable", format!("cannot listen on port {}: {error}", stub.port))
            .help("omit --port to let the system choose a free one")
    })?;
    let printer = session.printer.clone();
    let log = Arc::new(move |line: &str| printer.note(line));
    let stub = Stub::serve_on(script, listener, Some(log)).map_err(|error| Failure::unexpected(error.to_string()))?;
    if session.printer.json {
        session.printer.print_json(&json!({ "url": stub.base_url() }).to_string());
    } else {
        session.printer.print(&stub.base_url());
    }
    session.printer.note("scripted model for OpenAI and Anthropic clients; Ctrl-C stops it");
    signals.next().await;
    Ok(Exit::Success)
}

fn load_script(name: &str) -> Result<Script, Failure> {
    if name == DEMO_SCRIPT {
        return Ok(Script::demo());
    }
    if name.starts_with("builtin:") {
        return Err(Failure::usage(format!("there is no script `{name}`")).help(format!("use --script {DEMO_SCRIPT}")));
    }
    let mut text = String::new();
    let read = match name {
        "-" => std::io::stdin().read_to_string(&mut text).map(drop),
        file => std::fs::read_to_string(file).map(|content| text = content),
    };
    let label = if name == "-" { "on stdin" } else { name };
    read.map_err(|error| Failure::usage(format!("cannot read the script {label}: {error}")))?;
    Script::parse(&text).map_err(|error| {
        let mut failure = Failure::usage(format!("the script {label} is invalid"));
        failure.field_errors.extend(error.problems.into_iter().map(|problem| {
            let help = problem.help.map(|help| format!("; {help}")).unwrap_or_default();
            (format!("line {}", problem.line), format!("{}{help}", problem.message))
        }));
        failure.see_also("see", "docs/stub-llm.md")
    })
}

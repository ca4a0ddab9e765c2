//! `call`: calls a tool and waits for its outcome.
//!
//! In: a tool's name and arguments. Out: the tool's output on stdout. A call that requires an approval prompts the user on a
//! terminal, and otherwise prints how to answer. `crate::arguments` parses the arguments, `outcome` prints the outcome.

pub(crate) mod approval_dialog;
mod outcome;

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

pub(crate) use outcome::{call_failure, has_ended, show_outcome};

use super::{paging::pointer_text, tools};
use crate::{
    arguments::{self, shell_quote},
    client::Request,
    exit::Exit,
    failure::Failure,
    session::Session,
};

/// Call a tool.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolhub call calculator expression='(1 + 2) * 14'
  toolhub call notes add='buy milk' --thread demo
  toolhub call order lines:='[{\"sku\":\"latte\",\"qty\":2}]' address.city=Oslo tag=a tag=b
  echo '{\"expression\":\"1+1\"}' | toolhub call calculator -")]
pub(crate) struct Call {
    /// Name of the tool
    tool: String,
    /// Arguments: key=value, typed by the tool's schema; key:=JSON; a.b=value for a nested object; a repeated key for a list; or
    /// - for a JSON object on stdin
    #[arg(value_name = "KEY=VALUE", conflicts_with_all = ["args", "args_file"])]
    pairs: Vec<String>,
    /// Arguments as a JSON object
    #[arg(long, value_name = "JSON", conflicts_with = "args_file")]
    args: Option<String>,
    /// File with the arguments as a JSON object; - for stdin
    #[arg(long, value_name = "FILE")]
    args_file: Option<PathBuf>,
    /// Idempotency key: calls with the same key run once
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Run in the background; print the call's id
    #[arg(long = "async")]
    detached: bool,
    /// The thread, if it does not come from --thread.
    #[arg(skip)]
    thread: Option<String>,
}

impl Call {
    /// The call of a record again.
    pub(crate) fn repeat(record: &Value) -> Result<Self, Failure> {
        let arguments = record["arguments"].to_string();
        if arguments.contains("\"[redacted]\"") {
            return Err(Failure::usage("the record does not have the secrets that the call was made with")
                .help("call the tool with all its arguments: toolhub call"));
        }
        let thread = record["threadId"].as_str().map(String::from);
        let (tool, args) = (pointer_text(record, "/tool"), Some(arguments));
        Ok(Self { tool, pairs: Vec::new(), args, args_file: None, idempotency_key: None, detached: false, thread })
    }
}

pub(crate) async fn run(session: &Session, call: Call) -> Result<Exit, Failure> {
    let command = TypedCommand::new(&call);
    let arguments = read_arguments(session, &call, &command).await?;
    let in_process = session.client().await?.server_url().is_none();
    if call.detached && in_process {
        return Err(Failure::usage("--async needs a server, and none is running on this config")
            .help("start one with `toolhub serve`, or omit --async"));
    }
    let mut body = json!({ "arguments": arguments });
    if let Some(thread) = session.global.thread.as_ref().or(call.thread.as_ref()) {
        body["threadId"] = thread.as_str().into();
    }
    if let Some(timeout) = session.global.timeout {
        body["timeoutMs"] = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1).into();
    }
    let request = Request::post(["tools", &call.tool, "calls"])
        .header("idempotency-key", call.idempotency_key.as_deref())
        .header("prefer", call.detached.then_some("respond-async"))
        .body(body);
    let response = session.send_call(request).await?;
    if response.status >= 300 {
        return Err(with_help(session, response.failure(), &command));
    }
    let record = response.json()?;
    match response.status {
        202 if pointer_text(&record, "/status") == "awaiting_approval" => {
            approval_dialog::resolve_interactively(session, &record, &response.text(), command.took_stdin).await
        }
        202 => {
            report_accepted(session, &record, &response.text());
            Ok(Exit::Success)
        }
        _ => show_outcome(session, &record, &response.text()),
    }
}

/// The command line, for the corrected commands in help texts.
struct TypedCommand {
    tool: String,
    arguments: String,
    took_stdin: bool,
}

impl TypedCommand {
    fn new(call: &Call) -> Self {
        let pairs = call.pairs.iter().map(|pair| format!(" {}", shell_quote(pair)));
        let args = call.args.iter().map(|args| format!(" --args {}", shell_quote(args)));
        let file = call.args_file.iter().map(|file| format!(" --args-file {}", shell_quote(&file.to_string_lossy())));
        let from_stdin = call.pairs.first().is_some_and(|pair| pair == "-");
        Self {
            tool: call.tool.clone(),
            arguments: pairs.chain(args).chain(file).collect(),
            took_stdin: from_stdin || call.args_file.as_deref() == Some(Path::new("-")),
        }
    }
}

async fn read_arguments(session: &Session, call: &Call, command: &TypedCommand) -> Result<Map<String, Value>, Failure> {
    let source = match (&call.args, &call.args_file) {
        (Some(text), _) => Some(("--args", text.clone())),
        (None, Some(file)) if file != Path::new("-") => {
            let read_failure = |error| Failure::usage(format!("cannot read {}: {error}", file.display()));
            Some(("the file", std::fs::read_to_string(file).map_err(read_failure)?))
        }
        _ if command.took_stdin && call.pairs.len() < 2 => {
            let mut text = String::new();
            let read_failure = |error| Failure::usage(format!("cannot read stdin: {error}"));
            std::io::stdin().read_to_string(&mut text).map_err(read_failure)?;
            Some(("stdin", text))
        }
        _ => None,
    };
    if let Some((from, text)) = source {
        return arguments::parse_object(from, &text);
    }
    if call.pairs.is_empty() {
        return Ok(Map::new());
    }
    let tool = match session.send_checked(Request::get(["tools", &call.tool])).await {
        Ok(response) => response.json()?,
        Err(failure) => return Err(with_help(session, failure, command)),
    };
    arguments::parse_typed(&call.tool, &call.pairs, &tool["parameters"])
}

/// Adds the corrected command to a refusal.
fn with_help(session: &Session, mut failure: Failure, command: &TypedCommand) -> Failure {
    let tool = &command.tool;
    match failure.code.as_str() {
        "tool_not_found" => tools::with_not_found_help(failure, tool, |closest| {
            format!("toolhub call {closest}{}{}", command.arguments, session.target_flags())
        }),
        "arguments_invalid" => {
            failure.help.clear();
            failure.message = format!("arguments of `{tool}` are not valid");
            failure.see_also("schema", format!("toolhub tools show {tool} --schema{}", session.target_flags()))
        }
        "dependency_not_met" | "tool_failed_status" | "tool_maintenance" | "tool_unavailable" | "rate_limited" => {
            let thread = session.global.thread.as_ref().map_or(String::new(), |thread| format!(" --thread {thread}"));
            failure.see_also("why", format!("toolhub tools explain {tool}{thread}{}", session.target_flags()))
        }
        _ => failure,
    }
}

fn report_accepted(session: &Session, record: &Value, document: &str) {
    if session.printer.json {
        return session.printer.print_json(document);
    }
    let id = pointer_text(record, "/id");
    session.printer.print(&id);
    session.printer.note(&format!("running in the background: toolhub calls show {id}{}", session.target_flags()));
}

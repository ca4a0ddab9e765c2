//! `call`: one call of a tool, to its end.
//!
//! In: a tool's name and arguments as they are typed. Out: what the tool returned on stdout. A call that waits for a person
//! asks whoever sits here, or says who must be asked. `arguments` reads what was typed, `end` shows how it ended.

pub(crate) mod approval_dialog;
mod arguments;
mod outcome;

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

pub(crate) use arguments::{parse_object, parse_untyped};
pub(crate) use outcome::{call_failure, has_ended, show_outcome};

use super::paging::pointer_text;
use crate::{client::Request, exit::Exit, failure::Failure, session::Session};

/// Call a tool.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolhub call calculator expression='(1 + 2) * 14'
  toolhub call notes add='buy milk' --thread demo
  toolhub call order lines:='[{\"sku\":\"latte\",\"qty\":2}]' address.city=Oslo tag=a tag=b
  echo '{\"expression\":\"1+1\"}' | toolhub call calculator -")]
pub(crate) struct Call {
    /// The tool
    tool: String,
    /// Arguments: key=value, typed as the tool's schema says; key:=JSON; a.b=value inside an object; a key several times
    /// for a list; or - for a JSON object on stdin
    #[arg(value_name = "KEY=VALUE", conflicts_with_all = ["args", "args_file"])]
    pairs: Vec<String>,
    /// The arguments as a JSON object
    #[arg(long, value_name = "JSON", conflicts_with = "args_file")]
    args: Option<String>,
    /// A file with the arguments as a JSON object; - for stdin
    #[arg(long, value_name = "FILE")]
    args_file: Option<PathBuf>,
    /// A word that makes a repetition the same call: it runs once
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Do not wait for the end; print the call's id
    #[arg(long = "async")]
    detached: bool,
}

pub(crate) async fn run(session: &Session, call: Call) -> Result<Exit, Failure> {
    let typed = TypedCommand::new(&call);
    let arguments = read_arguments(session, &call, &typed).await?;
    let here = session.client().await?.server_url().is_none();
    if call.detached && here {
        return Err(Failure::usage("a call can go on alone only in a server, and none runs here")
            .help("start one with `toolhub serve`, or leave --async out"));
    }
    let mut body = json!({ "arguments": arguments });
    if let Some(thread) = &session.global.thread {
        body["threadId"] = thread.as_str().into();
    }
    if let Some(time) = session.global.timeout {
        body["timeoutMs"] = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1).into();
    }
    let request = Request::post(["tools", &call.tool, "calls"])
        .header("idempotency-key", call.idempotency_key.as_deref())
        .header("prefer", call.detached.then_some("respond-async"))
        .body(body);
    let answer = session.send_call(request).await?;
    if answer.status >= 300 {
        return Err(with_help(session, answer.failure(), &typed));
    }
    let record = answer.json()?;
    match answer.status {
        202 if pointer_text(&record, "/status") == "awaiting_approval" => {
            approval_dialog::resolve_interactively(session, &record, &answer.text(), typed.took_stdin).await
        }
        202 => {
            report_accepted(session, &record, &answer.text());
            Ok(Exit::Success)
        }
        _ => show_outcome(session, &record, &answer.text()),
    }
}

/// What was typed, for the commands that help suggests.
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

/// A word as a shell takes it.
fn shell_quote(word: &str) -> String {
    let simple = |c: char| c.is_alphanumeric() || "-_=./:,@+%".contains(c);
    if !word.is_empty() && word.chars().all(simple) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

async fn read_arguments(session: &Session, call: &Call, typed: &TypedCommand) -> Result<Map<String, Value>, Failure> {
    let whole = match (&call.args, &call.args_file) {
        (Some(text), _) => Some(("--args", text.clone())),
        (None, Some(file)) if file != Path::new("-") => {
            let cannot = |error| Failure::usage(format!("{} cannot be read: {error}", file.display()));
            Some(("the file", std::fs::read_to_string(file).map_err(cannot)?))
        }
        _ if typed.took_stdin && call.pairs.len() < 2 => {
            let mut text = String::new();
            let cannot = |error| Failure::usage(format!("stdin cannot be read: {error}"));
            std::io::stdin().read_to_string(&mut text).map_err(cannot)?;
            Some(("stdin", text))
        }
        _ => None,
    };
    if let Some((from, text)) = whole {
        return arguments::parse_object(from, &text);
    }
    if call.pairs.is_empty() {
        return Ok(Map::new());
    }
    let tool = match session.send_checked(Request::get(["tools", &call.tool])).await {
        Ok(answer) => answer.json()?,
        Err(failure) => return Err(with_help(session, failure, typed)),
    };
    arguments::parse_typed(&call.tool, &call.pairs, &tool["parameters"])
}

/// A refusal with the command that would have been right.
fn with_help(session: &Session, mut failure: Failure, typed: &TypedCommand) -> Failure {
    let tool = &typed.tool;
    match failure.code.as_str() {
        "tool_not_found" => {
            failure.help.clear();
            failure.message = format!("no tool named `{tool}`");
            match failure.suggestions.first().cloned() {
                Some(closest) => failure.help(format!("a tool with a similar name exists: `{closest}`")).help(format!(
                    "toolhub call {closest}{}{}",
                    typed.arguments,
                    session.target_flags()
                )),
                None => failure.help("toolhub tools list"),
            }
        }
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
    session.printer.note(&format!("it goes on alone: toolhub calls show {id}{}", session.target_flags()));
}

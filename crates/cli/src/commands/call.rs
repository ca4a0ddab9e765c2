//! `call`: one call of a tool, to its end.
//!
//! In: a tool's name and arguments as they are typed. Out: what the tool returned on stdout. A call that waits for a person
//! asks whoever sits here, or says who must be asked. `arguments` reads what was typed, `end` shows how it ended.

mod arguments;
mod end;
pub(crate) mod question;

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

pub(crate) use arguments::{object, untyped};
pub(crate) use end::{ended, failed, has_ended};

use super::list::text;
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
    let typed = Typed::new(&call);
    let arguments = read(session, &call, &typed).await?;
    let here = session.client().await?.server().is_none();
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
    let answer = session.call(request).await?;
    if answer.status >= 300 {
        return Err(explained(session, answer.failure(), &typed));
    }
    let record = answer.value()?;
    match answer.status {
        202 if text(&record, "/status") == "awaiting_approval" => {
            question::settle(session, &record, &answer.text(), typed.took_stdin).await
        }
        202 => {
            on_its_way(session, &record, &answer.text());
            Ok(Exit::Fine)
        }
        _ => ended(session, &record, &answer.text()),
    }
}

/// What was typed, for the commands that help suggests.
struct Typed {
    tool: String,
    rest: String,
    took_stdin: bool,
}

impl Typed {
    fn new(call: &Call) -> Self {
        let pairs = call.pairs.iter().map(|pair| format!(" {}", quoted(pair)));
        let args = call.args.iter().map(|args| format!(" --args {}", quoted(args)));
        let file = call.args_file.iter().map(|file| format!(" --args-file {}", quoted(&file.to_string_lossy())));
        let from_stdin = call.pairs.first().is_some_and(|pair| pair == "-");
        Self {
            tool: call.tool.clone(),
            rest: pairs.chain(args).chain(file).collect(),
            took_stdin: from_stdin || call.args_file.as_deref() == Some(Path::new("-")),
        }
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let simple = |c: char| c.is_alphanumeric() || "-_=./:,@+%".contains(c);
    if !word.is_empty() && word.chars().all(simple) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

async fn read(session: &Session, call: &Call, typed: &Typed) -> Result<Map<String, Value>, Failure> {
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
        return arguments::object(from, &text);
    }
    if call.pairs.is_empty() {
        return Ok(Map::new());
    }
    let tool = match session.ask(Request::get(["tools", &call.tool])).await {
        Ok(answer) => answer.value()?,
        Err(failure) => return Err(explained(session, failure, typed)),
    };
    arguments::typed(&call.tool, &call.pairs, &tool["parameters"])
}

/// A refusal with the command that would have been right.
fn explained(session: &Session, mut failure: Failure, typed: &Typed) -> Failure {
    let tool = &typed.tool;
    match failure.code.as_str() {
        "tool_not_found" => {
            failure.help.clear();
            failure.message = format!("no tool named `{tool}`");
            match failure.suggestions.first().cloned() {
                Some(closest) => failure.help(format!("a tool with a similar name exists: `{closest}`")).help(format!(
                    "toolhub call {closest}{}{}",
                    typed.rest,
                    session.flags()
                )),
                None => failure.help("toolhub tools list"),
            }
        }
        "arguments_invalid" => {
            failure.help.clear();
            failure.message = format!("arguments of `{tool}` are not valid");
            failure.see("schema", format!("toolhub tools show {tool} --schema{}", session.flags()))
        }
        "dependency_not_met" | "tool_failed_status" | "tool_maintenance" | "tool_unavailable" | "rate_limited" => {
            let thread = session.global.thread.as_ref().map_or(String::new(), |thread| format!(" --thread {thread}"));
            failure.see("why", format!("toolhub tools explain {tool}{thread}{}", session.flags()))
        }
        _ => failure,
    }
}

fn on_its_way(session: &Session, record: &Value, document: &str) {
    if session.show.json {
        return session.show.document(document);
    }
    let id = text(record, "/id");
    session.show.data(&id);
    session.show.say(&format!("it goes on alone: toolhub calls show {id}{}", session.flags()));
}

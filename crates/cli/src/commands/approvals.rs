//! `approvals`: calls that wait for a person, and what the person says.

use clap::Subcommand;
use serde_json::{Value, json};
use toolhub::clock::{Clock as _, SystemClock};

use super::{
    call,
    list::{self, Paging, text},
};
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    output::{Column, Fields, Table, ago, short, status, until},
    session::Session,
};

/// Answer calls that wait for a person.
#[derive(Debug, Subcommand)]
pub(crate) enum Approvals {
    /// List the questions that wait for an answer
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one question
    #[command(alias = "get")]
    Show {
        /// The question, apr_…
        id: String,
    },
    /// Let the call run
    #[command(alias = "allow")]
    Approve(Approve),
    /// Do not let the call run
    Deny {
        /// The question, apr_…
        id: String,
        /// Why; the model is told
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

/// Let the call run.
#[derive(Debug, clap::Args)]
pub(crate) struct Approve {
    /// The question, apr_…
    id: String,
    /// And do not ask again about this tool in this thread
    #[arg(long, group = "how")]
    always_thread: bool,
    /// And do not ask again about this tool
    #[arg(long, group = "how")]
    always_tool: bool,
    /// With these arguments instead, a JSON object
    #[arg(long, value_name = "JSON", group = "how")]
    edit: Option<String>,
    /// With other arguments, to be written in your editor (VISUAL or EDITOR)
    #[arg(long, group = "how")]
    editor: bool,
}

const COLUMNS: [Column; 6] = [
    Column::new("ID"),
    Column::new("TOOL").cut(6),
    Column::new("ARGUMENTS").cut(12),
    Column::new("THREAD").goes(3).cut(8),
    Column::new("ASKED").goes(4),
    Column::new("LEFT").goes(2),
];

pub(crate) async fn run(session: &Session, asked: Approvals) -> Result<Exit, Failure> {
    match asked {
        Approvals::List { paging } => pending(session, &paging).await,
        Approvals::Show { id } => show(session, &id).await,
        Approvals::Approve(asked) => {
            let edited = match &asked.edit {
                Some(text) => Some(call::object("--edit", text)?),
                // What was saved as it was is approved as it was asked.
                None if asked.editor => call::question::in_editor(session, &asked.id).await.map_err(unknown)?,
                None => None,
            };
            let body = match edited {
                Some(arguments) => json!({"outcome": "modify_with_editor", "arguments": arguments}),
                None if asked.always_thread => json!({"outcome": "proceed_always"}),
                None if asked.always_tool => json!({"outcome": "proceed_always_tool"}),
                None => json!({"outcome": "proceed_once"}),
            };
            answer(session, &asked.id, body).await
        }
        Approvals::Deny { id, reason } => {
            let mut body = json!({"outcome": "cancel"});
            if let Some(reason) = reason {
                body["reason"] = reason.into();
            }
            answer(session, &id, body).await
        }
    }
}

async fn pending(session: &Session, paging: &Paging) -> Result<Exit, Failure> {
    let request = Request::get(["approvals"]).query("state", Some("pending"));
    let Some(questions) = list::items(session, request, paging).await? else { return Ok(Exit::Fine) };
    let show = &session.show;
    if questions.is_empty() {
        show.say("nothing waits for an answer");
        return Ok(Exit::Fine);
    }
    let (now, mut table) = (SystemClock.now(), Table::new(COLUMNS));
    for question in &questions {
        table.row([
            text(question, "/id"),
            text(question, "/tool"),
            short(&question["arguments"], 200, show.ascii),
            text(question, "/threadId"),
            ago(&text(question, "/askedAt"), now),
            until(&text(question, "/expiresAt"), now),
        ]);
    }
    show.data(&table.lines(show.width, show.ascii));
    let first = questions.first().map(|question| text(question, "/id")).unwrap_or_default();
    show.say(&format!("toolhub approvals approve {first}{}", session.flags()));
    Ok(Exit::Fine)
}

async fn show(session: &Session, id: &str) -> Result<Exit, Failure> {
    let answer = session.ask(Request::get(["approvals", id])).await.map_err(unknown)?;
    if session.show.json {
        session.show.document(&answer.text());
    } else {
        session.show.data(&about(&answer.value()?, session));
    }
    Ok(Exit::Fine)
}

fn about(question: &Value, session: &Session) -> String {
    let (show, now) = (&session.show, SystemClock.now());
    let mut fields = Fields::default();
    fields.add("id", text(question, "/id"));
    let (word, style) = status(&text(question, "/state"), show.ascii);
    fields.styled("state", word, style);
    fields.add("tool", text(question, "/tool"));
    for (name, value) in question["arguments"].as_object().into_iter().flatten() {
        fields.add(&format!("  {name}"), value.to_string());
    }
    fields.add("thread", text(question, "/threadId"));
    fields.add("caller", text(question, "/caller"));
    fields.add("rule", text(question, "/rule"));
    fields.add("reason", text(question, "/reason"));
    fields.add("asked", ago(&text(question, "/askedAt"), now));
    if question["state"] == "pending" {
        fields.add("left", until(&text(question, "/expiresAt"), now));
    }
    fields.add("answer", text(question, "/answer/outcome").replace('_', " "));
    fields.add("by", text(question, "/answer/by"));
    fields.add("said", text(question, "/answer/message"));
    fields.add("call", text(question, "/callId"));
    fields.lines(show.width, 0)
}

async fn answer(session: &Session, id: &str, body: Value) -> Result<Exit, Failure> {
    let denied = body["outcome"] == "cancel";
    let answer = session.ask(Request::post(["approvals", id]).body(body)).await.map_err(unknown)?;
    let question = answer.value()?;
    let call = text(&question, "/callId");
    // In a server the call goes on by itself. Here nobody else would see it to its end.
    let here = session.client().await?.server().is_none();
    if !here && !call.is_empty() {
        // A call of which nothing is kept, or that somebody else may not see, is no reason to fail.
        let _ = call::question::once(session, &call, |call| call["status"] != "awaiting_approval").await;
    }
    let ran = if here && !denied && !call.is_empty() { goes_on(session, &call).await? } else { None };
    let show = &session.show;
    if show.json {
        show.document(&answer.text());
        return Ok(Exit::Fine);
    }
    let (word, style) = status(if denied { "denied" } else { "approved" }, show.ascii);
    show.data(&format!("{style}{word}{style:#}  {}", text(&question, "/tool")));
    match ran {
        Some((record, document)) => call::ended(session, &record, &document),
        None => {
            show.say(&format!("toolhub calls show {call}{}", session.flags()));
            Ok(Exit::Fine)
        }
    }
}

/// The end of the call, if it still waits in this hub for the answer.
async fn goes_on(session: &Session, call: &str) -> Result<Option<(Value, String)>, Failure> {
    let found = session.client().await?.send(Request::get(["calls", call])).await?;
    if found.status != 200 {
        return Ok(None);
    }
    call::question::end(session, call).await.map(Some)
}

fn unknown(failure: Failure) -> Failure {
    match failure.code.as_str() {
        "approval_not_found" => failure.help("toolhub approvals list"),
        _ => failure,
    }
}

//! `approvals`: calls that wait for a person, and what the person says.

use clap::Subcommand;
use serde_json::{Value, json};
use toolhub::clock::{Clock as _, SystemClock};

use super::{
    call,
    paging::{self, Paging, pointer_text},
};
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    output::{Column, Fields, Table, format_ago, format_remaining, format_status, truncate_value},
    session::Session,
};

/// Answer calls that wait for a person.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
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
    Column::new("TOOL").shrink_to(6),
    Column::new("ARGUMENTS").shrink_to(12),
    Column::new("THREAD").drop_order(3).shrink_to(8),
    Column::new("ASKED").drop_order(4),
    Column::new("LEFT").drop_order(2),
];

pub(crate) async fn run(session: &Session, asked: ApprovalsCommand) -> Result<Exit, Failure> {
    match asked {
        ApprovalsCommand::List { paging } => list_pending(session, &paging).await,
        ApprovalsCommand::Show { id } => show(session, &id).await,
        ApprovalsCommand::Approve(asked) => {
            let edited = match &asked.edit {
                Some(text) => Some(call::parse_object("--edit", text)?),
                // What was saved as it was is approved as it was asked.
                None if asked.editor => {
                    call::approval_dialog::edit_in_editor(session, &asked.id).await.map_err(with_not_found_help)?
                }
                None => None,
            };
            let body = match edited {
                Some(arguments) => json!({"outcome": "modify_with_editor", "arguments": arguments}),
                None if asked.always_thread => json!({"outcome": "proceed_always"}),
                None if asked.always_tool => json!({"outcome": "proceed_always_tool"}),
                None => json!({"outcome": "proceed_once"}),
            };
            resolve(session, &asked.id, body).await
        }
        ApprovalsCommand::Deny { id, reason } => {
            let mut body = json!({"outcome": "cancel"});
            if let Some(reason) = reason {
                body["reason"] = reason.into();
            }
            resolve(session, &id, body).await
        }
    }
}

async fn list_pending(session: &Session, paging: &Paging) -> Result<Exit, Failure> {
    let request = Request::get(["approvals"]).query("state", Some("pending"));
    let Some(questions) = paging::fetch_items(session, request, paging).await? else { return Ok(Exit::Success) };
    let show = &session.printer;
    if questions.is_empty() {
        show.note("nothing waits for an answer");
        return Ok(Exit::Success);
    }
    let (now, mut table) = (SystemClock.now(), Table::new(COLUMNS));
    for question in &questions {
        table.add_row([
            pointer_text(question, "/id"),
            pointer_text(question, "/tool"),
            truncate_value(&question["arguments"], 200, show.ascii),
            pointer_text(question, "/threadId"),
            format_ago(&pointer_text(question, "/askedAt"), now),
            format_remaining(&pointer_text(question, "/expiresAt"), now),
        ]);
    }
    show.print(&table.render(show.width, show.ascii));
    let first = questions.first().map(|question| pointer_text(question, "/id")).unwrap_or_default();
    show.note(&format!("toolhub approvals approve {first}{}", session.target_flags()));
    Ok(Exit::Success)
}

async fn show(session: &Session, id: &str) -> Result<Exit, Failure> {
    let answer = session.send_checked(Request::get(["approvals", id])).await.map_err(with_not_found_help)?;
    if session.printer.json {
        session.printer.print_json(&answer.text());
    } else {
        session.printer.print(&render_approval(&answer.json()?, session));
    }
    Ok(Exit::Success)
}

fn render_approval(question: &Value, session: &Session) -> String {
    let (show, now) = (&session.printer, SystemClock.now());
    let mut fields = Fields::default();
    fields.add("id", pointer_text(question, "/id"));
    let (word, style) = format_status(&pointer_text(question, "/state"), show.ascii);
    fields.add_styled("state", word, style);
    fields.add("tool", pointer_text(question, "/tool"));
    for (name, value) in question["arguments"].as_object().into_iter().flatten() {
        fields.add(&format!("  {name}"), value.to_string());
    }
    fields.add("thread", pointer_text(question, "/threadId"));
    fields.add("caller", pointer_text(question, "/caller"));
    fields.add("rule", pointer_text(question, "/rule"));
    fields.add("reason", pointer_text(question, "/reason"));
    fields.add("asked", format_ago(&pointer_text(question, "/askedAt"), now));
    if question["state"] == "pending" {
        fields.add("left", format_remaining(&pointer_text(question, "/expiresAt"), now));
    }
    fields.add("answer", pointer_text(question, "/answer/outcome").replace('_', " "));
    fields.add("by", pointer_text(question, "/answer/by"));
    fields.add("said", pointer_text(question, "/answer/message"));
    fields.add("call", pointer_text(question, "/callId"));
    fields.render(show.width, 0)
}

async fn resolve(session: &Session, id: &str, body: Value) -> Result<Exit, Failure> {
    let denied = body["outcome"] == "cancel";
    let answer =
        session.send_checked(Request::post(["approvals", id]).body(body)).await.map_err(with_not_found_help)?;
    let question = answer.json()?;
    let call = pointer_text(&question, "/callId");
    // In a server the call goes on by itself. Here nobody else would see it to its end.
    let here = session.client().await?.server_url().is_none();
    if !here && !call.is_empty() {
        // A call of which nothing is kept, or that somebody else may not see, is no reason to fail.
        let _ = call::approval_dialog::poll_until(session, &call, |call| call["status"] != "awaiting_approval").await;
    }
    let ran = if here && !denied && !call.is_empty() { wait_for_call(session, &call).await? } else { None };
    let show = &session.printer;
    if show.json {
        show.print_json(&answer.text());
        return Ok(Exit::Success);
    }
    let (word, style) = format_status(if denied { "denied" } else { "approved" }, show.ascii);
    show.print(&format!("{style}{word}{style:#}  {}", pointer_text(&question, "/tool")));
    match ran {
        Some((record, document)) => call::show_outcome(session, &record, &document),
        None => {
            show.note(&format!("toolhub calls show {call}{}", session.target_flags()));
            Ok(Exit::Success)
        }
    }
}

/// The end of the call, if it still waits in this hub for the answer.
async fn wait_for_call(session: &Session, call: &str) -> Result<Option<(Value, String)>, Failure> {
    let found = session.client().await?.send(Request::get(["calls", call])).await?;
    if found.status != 200 {
        return Ok(None);
    }
    call::approval_dialog::wait_for_result(session, call).await.map(Some)
}

fn with_not_found_help(failure: Failure) -> Failure {
    match failure.code.as_str() {
        "approval_not_found" => failure.help("toolhub approvals list"),
        _ => failure,
    }
}

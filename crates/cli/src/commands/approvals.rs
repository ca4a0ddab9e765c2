//! `approvals`: lists approvals and answers them; lists grants and revokes them.

use axum::http::Method;
use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};
use toolhub::clock::{Clock as _, SystemClock};

use super::{
    call,
    paging::{self, Paging, pointer_text},
};
use crate::{
    arguments,
    client::Request,
    exit::Exit,
    failure::Failure,
    output::{Column, Fields, Table, format_ago, format_remaining, format_status, truncate_value},
    session::Session,
};

/// List and answer approvals; list and revoke grants.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List approvals; the pending ones by default
    #[command(alias = "ls")]
    List {
        /// Approvals in this state
        #[arg(long, value_name = "STATE", default_value = "pending", conflicts_with = "all")]
        state: StateFilter,
        /// Approvals in every state
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show an approval
    #[command(alias = "get")]
    Show {
        /// Approval id, apr_…
        id: String,
    },
    /// Approve the call
    #[command(alias = "allow")]
    Approve(Approve),
    /// Deny the call
    Deny {
        /// Approval id, apr_…
        id: String,
        /// Reason, shown to the model
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// List grants: what was answered with "always"
    Grants {
        #[command(flatten)]
        paging: Paging,
    },
    /// Revoke a grant: the next call requires an approval again
    Revoke {
        /// Grant id, gr_…
        id: String,
    },
}

/// The state of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum StateFilter {
    Pending,
    Approved,
    Denied,
    TimedOut,
    Withdrawn,
    Used,
}

impl StateFilter {
    fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::TimedOut => "timed_out",
            Self::Withdrawn => "withdrawn",
            Self::Used => "used",
        }
    }
}

/// Approve the call.
#[derive(Debug, clap::Args)]
pub(crate) struct Approve {
    /// Approval id, apr_…
    id: String,
    /// And allow this tool in this thread from now on
    #[arg(long, group = "how")]
    always_thread: bool,
    /// And allow this tool in every thread from now on
    #[arg(long, group = "how")]
    always_tool: bool,
    /// With these arguments instead, as a JSON object
    #[arg(long, value_name = "JSON", group = "how")]
    edit: Option<String>,
    /// With arguments edited in your editor (VISUAL or EDITOR)
    #[arg(long, group = "how")]
    editor: bool,
}

const COLUMNS: [Column; 6] = [
    Column::new("ID"),
    Column::new("TOOL").shrink_to(6),
    Column::new("ARGUMENTS").shrink_to(12),
    Column::new("THREAD").drop_order(3).shrink_to(8),
    Column::new("REQUESTED").drop_order(4),
    Column::new("EXPIRES").drop_order(2),
];

const ANSWERED_COLUMNS: [Column; 7] = [
    Column::new("ID"),
    Column::new("STATE"),
    Column::new("TOOL").shrink_to(6),
    Column::new("ARGUMENTS").shrink_to(12).drop_order(5),
    Column::new("THREAD").drop_order(3).shrink_to(8),
    Column::new("ANSWER").drop_order(2),
    Column::new("BY").drop_order(4),
];

const GRANT_COLUMNS: [Column; 6] = [
    Column::new("ID"),
    Column::new("TOOLS").shrink_to(6),
    Column::new("WHERE").shrink_to(8),
    Column::new("RULE").shrink_to(12).drop_order(4),
    Column::new("BY").drop_order(3),
    Column::new("SINCE").drop_order(2),
];

pub(crate) async fn run(session: &Session, command: ApprovalsCommand) -> Result<Exit, Failure> {
    match command {
        ApprovalsCommand::List { state: StateFilter::Pending, all: false, paging } => {
            list_pending(session, &paging).await
        }
        ApprovalsCommand::List { state, all, paging } => list_answered(session, state, all, &paging).await,
        ApprovalsCommand::Grants { paging } => list_grants(session, &paging).await,
        ApprovalsCommand::Revoke { id } => revoke(session, &id).await,
        ApprovalsCommand::Show { id } => show(session, &id).await,
        ApprovalsCommand::Approve(args) => {
            let edited = match &args.edit {
                Some(text) => Some(arguments::parse_object("--edit", text)?),
                // Arguments saved without a change are approved as requested.
                None if args.editor => {
                    call::approval_dialog::edit_in_editor(session, &args.id).await.map_err(with_not_found_help)?
                }
                None => None,
            };
            let body = match edited {
                Some(arguments) => json!({"outcome": "modify_with_editor", "arguments": arguments}),
                None if args.always_thread => json!({"outcome": "proceed_always"}),
                None if args.always_tool => json!({"outcome": "proceed_always_tool"}),
                None => json!({"outcome": "proceed_once"}),
            };
            resolve(session, &args.id, body).await
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
    let Some(approvals) = paging::fetch_items(session, request, paging).await? else { return Ok(Exit::Success) };
    let printer = &session.printer;
    if approvals.is_empty() {
        printer.note("no pending approvals");
        return Ok(Exit::Success);
    }
    let (now, mut table) = (SystemClock.now(), Table::new(COLUMNS));
    for approval in &approvals {
        table.add_row([
            pointer_text(approval, "/id"),
            pointer_text(approval, "/tool"),
            truncate_value(&approval["arguments"], 200, printer.ascii),
            pointer_text(approval, "/threadId"),
            format_ago(&pointer_text(approval, "/askedAt"), now),
            format_remaining(&pointer_text(approval, "/expiresAt"), now),
        ]);
    }
    printer.print(&table.render(printer.width, printer.ascii));
    let first = approvals.first().map(|approval| pointer_text(approval, "/id")).unwrap_or_default();
    printer.note(&format!("toolhub approvals approve {first}{}", session.target_flags()));
    Ok(Exit::Success)
}

async fn list_answered(session: &Session, state: StateFilter, all: bool, paging: &Paging) -> Result<Exit, Failure> {
    let request = Request::get(["approvals"]).query("state", (!all).then(|| state.name()));
    let Some(approvals) = paging::fetch_items(session, request, paging).await? else { return Ok(Exit::Success) };
    let printer = &session.printer;
    if approvals.is_empty() {
        printer.note(&if all {
            "no approvals".into()
        } else {
            format!("no {} approvals", state.name().replace('_', " "))
        });
        return Ok(Exit::Success);
    }
    let mut table = Table::new(ANSWERED_COLUMNS);
    for approval in &approvals {
        table.add_row([
            pointer_text(approval, "/id"),
            format_status(&pointer_text(approval, "/state"), printer.ascii).0,
            pointer_text(approval, "/tool"),
            truncate_value(&approval["arguments"], 200, printer.ascii),
            pointer_text(approval, "/threadId"),
            pointer_text(approval, "/answer/outcome").replace('_', " "),
            pointer_text(approval, "/answer/by"),
        ]);
    }
    printer.print(&table.render(printer.width, printer.ascii));
    Ok(Exit::Success)
}

async fn list_grants(session: &Session, paging: &Paging) -> Result<Exit, Failure> {
    let Some(grants) = paging::fetch_items(session, Request::get(["grants"]), paging).await? else {
        return Ok(Exit::Success);
    };
    let printer = &session.printer;
    if grants.is_empty() {
        printer.note("no grants");
        return Ok(Exit::Success);
    }
    let (now, mut table) = (SystemClock.now(), Table::new(GRANT_COLUMNS));
    for grant in &grants {
        let names = |key: &str| grant[key].as_array().cloned().unwrap_or_default().into_iter();
        let changed = names("changedTools").map(|tool| format!("{} (changed, asks again)", pointer_text(&tool, "")));
        let tools = names("tools").map(|tool| pointer_text(&tool, "")).chain(changed);
        let scope = match grant["covers"]["scope"].as_str() {
            Some("thread") => format!("thread {}", pointer_text(grant, "/covers/threadId")),
            Some("server") => format!("server {}", pointer_text(grant, "/covers/server")),
            _ => "every thread".into(),
        };
        table.add_row([
            pointer_text(grant, "/id"),
            tools.collect::<Vec<_>>().join(", "),
            scope,
            pointer_text(grant, "/rule"),
            pointer_text(grant, "/grantedBy"),
            format_ago(&pointer_text(grant, "/grantedAt"), now),
        ]);
    }
    printer.print(&table.render(printer.width, printer.ascii));
    let first = grants.first().map(|grant| pointer_text(grant, "/id")).unwrap_or_default();
    printer.note(&format!("toolhub approvals revoke {first}{}", session.target_flags()));
    Ok(Exit::Success)
}

async fn revoke(session: &Session, id: &str) -> Result<Exit, Failure> {
    let revoked = session.send_checked(Request::new(Method::DELETE, ["grants", id])).await;
    revoked.map_err(|failure| match failure.code.as_str() {
        "grant_not_found" => failure.help(format!("toolhub approvals grants{}", session.target_flags())),
        _ => failure,
    })?;
    session.printer.note(&format!("revoked {id}: the next call requires an approval again"));
    Ok(Exit::Success)
}

async fn show(session: &Session, id: &str) -> Result<Exit, Failure> {
    let response = session.send_checked(Request::get(["approvals", id])).await.map_err(with_not_found_help)?;
    if session.printer.json {
        session.printer.print_json(&response.text());
    } else {
        let approval = response.json()?;
        let page = call::approval_dialog::page_url(session, &approval).await.unwrap_or_default();
        session.printer.print(&render_approval(&approval, &page, session));
    }
    Ok(Exit::Success)
}

fn render_approval(approval: &Value, page: &str, session: &Session) -> String {
    let (printer, now) = (&session.printer, SystemClock.now());
    let mut fields = Fields::default();
    fields.add("id", pointer_text(approval, "/id"));
    let (status, style) = format_status(&pointer_text(approval, "/state"), printer.ascii);
    fields.add_styled("state", status, style);
    fields.add("tool", pointer_text(approval, "/tool"));
    for (name, value) in approval["arguments"].as_object().into_iter().flatten() {
        fields.add(&format!("  {name}"), value.to_string());
    }
    fields.add("thread", pointer_text(approval, "/threadId"));
    fields.add("caller", pointer_text(approval, "/caller"));
    fields.add("rule", pointer_text(approval, "/rule"));
    fields.add("reason", pointer_text(approval, "/reason"));
    fields.add("requested", format_ago(&pointer_text(approval, "/askedAt"), now));
    if approval["state"] == "pending" {
        fields.add("expires in", format_remaining(&pointer_text(approval, "/expiresAt"), now));
    }
    fields.add("answer", pointer_text(approval, "/answer/outcome").replace('_', " "));
    for (name, value) in approval["answer"]["arguments"].as_object().into_iter().flatten() {
        fields.add(&format!("  {name}"), value.to_string());
    }
    fields.add("by", pointer_text(approval, "/answer/by"));
    fields.add("message", pointer_text(approval, "/answer/reason"));
    fields.add("call", pointer_text(approval, "/callId"));
    if approval["callWaits"] == false && approval["state"] == "pending" {
        fields.add("", "no caller waits for it: once approved, it runs when the call is made again");
    }
    fields.add("page", page);
    fields.render(printer.width, 0)
}

async fn resolve(session: &Session, id: &str, body: Value) -> Result<Exit, Failure> {
    let denied = body["outcome"] == "cancel";
    let response =
        session.send_checked(Request::post(["approvals", id]).body(body)).await.map_err(with_not_found_help)?;
    let approval = response.json()?;
    let call = pointer_text(&approval, "/callId");
    if approval["callWaits"] == false {
        return report_unawaited(session, &approval, denied, &response.text());
    }
    // A server runs the approved call by itself. In process, this command must run it to its end.
    let in_process = session.client().await?.server_url().is_none();
    // The record may have been deleted, be hidden from this key, or a repetition of the call waits; that is no failure of
    // the answer.
    let is_found = in_process
        || call::approval_dialog::poll_until(session, &call, |call| call["status"] != "awaiting_approval")
            .await
            .is_ok();
    let outcome = if in_process && !denied && !call.is_empty() { wait_for_call(session, &call).await? } else { None };
    let printer = &session.printer;
    if printer.json {
        printer.print_json(&response.text());
        return Ok(Exit::Success);
    }
    let (status, style) = format_status(if denied { "denied" } else { "approved" }, printer.ascii);
    printer.print(&format!("{style}{status}{style:#}  {}", pointer_text(&approval, "/tool")));
    match outcome {
        Some((record, document)) => call::show_outcome(session, &record, &document),
        None => {
            if is_found {
                printer.note(&format!("toolhub calls show {call}{}", session.target_flags()));
            }
            Ok(Exit::Success)
        }
    }
}

/// The answer to a call that no caller waits for: its caller could not wait, or is gone.
fn report_unawaited(session: &Session, approval: &Value, denied: bool, document: &str) -> Result<Exit, Failure> {
    let printer = &session.printer;
    if printer.json {
        printer.print_json(document);
        return Ok(Exit::Success);
    }
    let (status, style) = format_status(if denied { "denied" } else { "approved" }, printer.ascii);
    printer.print(&format!("{style}{status}{style:#}  {}", pointer_text(approval, "/tool")));
    if denied {
        printer.note("no caller waits for this call; it is refused when it is made again");
    } else {
        let time = format_remaining(&pointer_text(approval, "/expiresAt"), SystemClock.now());
        printer.note(&format!("no caller waits for this call; it runs when the call is made again, within {time}"));
    }
    Ok(Exit::Success)
}

/// The outcome of the call, if this hub still knows it.
async fn wait_for_call(session: &Session, call: &str) -> Result<Option<(Value, String)>, Failure> {
    let response = session.client().await?.send(Request::get(["calls", call])).await?;
    if response.status != 200 {
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

//! A call that requires an approval: prompts the user on a terminal, or prints how to answer it.
//!
//! In: the call as the API returned it. Out: the call's outcome, or exit code 6 where no user can be prompted.

use std::{
    io::{self, IsTerminal, Write as _},
    time::Duration,
};

use anstyle::{AnsiColor, Style};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{super::paging::pointer_text, has_ended, show_outcome};
use crate::{
    approval_prompt::{self, PromptReply, StdinLines},
    arguments,
    client::Request,
    editor,
    exit::Exit,
    failure::Failure,
    output::{Fields, Spinner, strip_hidden, warning_sign},
    session::Session,
};

const WARNING_STYLE: Style = AnsiColor::Yellow.on_default().bold();
const BOLD: Style = Style::new().bold();
const CHOICES_PROMPT: &str = "  [y] allow once  [t] for this thread  [a] always  [e] edit  [n] deny  [?] more  > ";
/// The same for a call without thread.
const CHOICES_WITHOUT_THREAD: &str = "  [y] allow once  [a] always  [e] edit  [n] deny  [?] more  > ";
/// How often to check whether the call has ended meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long a command waits to see the effect of its answer.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);

/// Prompts for the approval of a call, if there is a terminal, and waits for the outcome.
pub(super) async fn resolve_interactively(
    session: &Session,
    call: &Value,
    document: &str,
    took_stdin: bool,
) -> Result<Exit, Failure> {
    let (id, approval) = (pointer_text(call, "/id"), pointer_text(call, "/approval/id"));
    let is_interactive = io::stdin().is_terminal() && io::stderr().is_terminal();
    if session.global.no_input || took_stdin || !is_interactive {
        if session.printer.json {
            session.printer.print_json(document);
        }
        return Err(approval_required(session, call).await);
    }
    let details = session.send_checked(Request::get(["approvals", &approval])).await?.json()?;
    let withdrawn = "the request was withdrawn; the call was not made";
    session.set_interrupt_request(Some((Request::post(["calls", &id, "cancel"]), withdrawn)));
    print_question(session, &details).await;
    let mut lines = StdinLines::spawn_reader();
    tokio::select! {
        answered = prompt_for_answer(session, &details, &mut lines) => answered?,
        () = wait_until_ended(session, &id) => print_end_elsewhere(session, &approval).await,
    }
    // From here on the tool may run: an interrupt cancels it as that of any other call.
    session.set_interrupt_request(Some((Request::post(["calls", &id, "cancel"]), "the call is being cancelled")));
    let (call, document) = wait_for_result(session, &id).await?;
    show_outcome(session, &call, &document)
}

/// The failure where no user can be prompted.
async fn approval_required(session: &Session, call: &Value) -> Failure {
    let (id, approval) = (pointer_text(call, "/id"), pointer_text(call, "/approval/id"));
    let flags = session.target_flags();
    let failure = Failure::new("approval_required", format!("`{}` requires approval", pointer_text(call, "/tool")))
        .help("approve or deny it:")
        .help(format!("toolhub approvals approve {approval}{flags}"))
        .help(format!("toolhub approvals deny {approval}{flags}"))
        .see_also("then", format!("toolhub calls show {id}{flags}"));
    match page_url(session, &call["approval"]).await {
        Some(url) => failure.help(format!("page: {url}")),
        None => failure,
    }
}

/// The URL of an approval's page, if a server serves it.
pub(crate) async fn page_url(session: &Session, approval: &Value) -> Option<String> {
    session.client().await.ok()?.server_url()?;
    Some(pointer_text(approval, "/url")).filter(|url| !url.is_empty())
}

pub(crate) async fn print_question(session: &Session, approval: &Value) {
    let (printer, tool) = (&session.printer, pointer_text(approval, "/tool"));
    let tool_info = match session.send_checked(Request::get(["tools", &tool])).await {
        Ok(response) => response.json().unwrap_or_default(),
        Err(_) => Value::Null,
    };
    let destructive = if tool_info["annotations"]["destructive"] == true { "   destructive" } else { "" };
    let sign = warning_sign(printer.ascii);
    let about = format!("{}{destructive}", pointer_text(&tool_info, "/kind"));
    let _ = writeln!(
        anstream::stderr(),
        "{WARNING_STYLE}{sign} {BOLD}{}{BOLD:#}{WARNING_STYLE} wants to run{WARNING_STYLE:#}    {about}",
        strip_hidden(&tool)
    );
    let mut fields = Fields::default();
    for (name, value) in approval["arguments"].as_object().into_iter().flatten() {
        fields.add(name, value.to_string());
    }
    fields.add("thread", pointer_text(approval, "/threadId"));
    fields.add("rule", pointer_text(approval, "/rule"));
    fields.add("reason", pointer_text(approval, "/reason"));
    let _ = write!(anstream::stderr(), "{}", fields.render(printer.width, 4));
}

/// Prompts until the hub accepts an answer, or another client has answered.
pub(crate) async fn prompt_for_answer(
    session: &Session,
    details: &Value,
    lines: &mut StdinLines,
) -> Result<(), Failure> {
    let approval = &pointer_text(details, "/id");
    let has_thread = details["threadId"].is_string();
    let choices = if has_thread { CHOICES_PROMPT } else { CHOICES_WITHOUT_THREAD };
    loop {
        let line = prompt_line(choices, lines).await;
        let mut reply = approval_prompt::parse_reply(line.as_deref());
        if reply == PromptReply::Edit {
            reply = edit_arguments(session, approval, lines).await;
        }
        if let PromptReply::Changed(words) = reply {
            reply = match change_arguments(session, approval, &words).await {
                Ok(arguments) => PromptReply::Edited(arguments),
                Err(failure) => {
                    failure.print(&session.printer);
                    continue;
                }
            };
        }
        let body = match reply {
            PromptReply::Once => json!({"outcome": "proceed_once"}),
            PromptReply::Thread if !has_thread => {
                print_indented("the call belongs to no thread: answer y or a, or make it again with --thread");
                continue;
            }
            PromptReply::Thread => json!({"outcome": "proceed_always"}),
            PromptReply::Always => json!({"outcome": "proceed_always_tool"}),
            PromptReply::Edited(arguments) => json!({"outcome": "modify_with_editor", "arguments": arguments}),
            PromptReply::Deny(None) => json!({"outcome": "cancel"}),
            PromptReply::Deny(Some(why)) => json!({"outcome": "cancel", "reason": why}),
            PromptReply::Help => {
                print_indented(approval_prompt::HELP);
                continue;
            }
            PromptReply::Invalid(text) => {
                print_indented(&text);
                continue;
            }
            PromptReply::Edit | PromptReply::Changed(_) | PromptReply::Empty => continue,
        };
        match session.send_checked(Request::post(["approvals", approval]).body(body)).await {
            Ok(_) => return Ok(()),
            // The edited arguments do not match the schema, or a rule forbids them: prompt again.
            Err(failure) if matches!(failure.code.as_str(), "arguments_invalid" | "invalid_request" | "forbidden") => {
                failure.print(&session.printer);
            }
            // Another client has answered, or the approval has expired: what matters now is the call's outcome.
            Err(failure) if failure.code == "already_resolved" => {
                print_indented(&failure.message);
                return Ok(());
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Lets the user edit the arguments: in the configured editor, or else on one line.
async fn edit_arguments(session: &Session, approval: &str, lines: &mut StdinLines) -> PromptReply {
    if !editor::is_configured() {
        let prompt = format!("  {} ", approval_prompt::EDIT_PROMPT);
        return prompt_line(&prompt, lines)
            .await
            .map_or_else(|| approval_prompt::parse_reply(None), |line| approval_prompt::parse_edited_arguments(&line));
    }
    match edit_in_editor(session, approval).await {
        Ok(Some(arguments)) => PromptReply::Edited(arguments.into()),
        Ok(None) => PromptReply::Invalid("the arguments are unchanged; y allows the call as it is".into()),
        Err(failure) => {
            failure.print(&session.printer);
            PromptReply::Empty
        }
    }
}

/// The arguments of an approval with these changes, typed by the tool's schema.
async fn change_arguments(session: &Session, approval: &str, words: &[String]) -> Result<Value, Failure> {
    let mut details = session.send_checked(Request::get(["approvals", approval])).await?.json()?;
    let tool = session.send_checked(Request::get(["tools", &pointer_text(&details, "/tool")])).await?.json()?;
    arguments::change_arguments(details["arguments"].take(), words, &tool["parameters"])
}

/// Opens the arguments of an approval in the editor; `None` if they were saved unchanged.
///
/// # Errors
/// When they cannot be edited, or the saved text is not a JSON object.
pub(crate) async fn edit_in_editor(session: &Session, approval: &str) -> Result<Option<Map<String, Value>>, Failure> {
    let details = session.send_checked(Request::get(["approvals", approval])).await?.json()?;
    let text = serde_json::to_string_pretty(&details["arguments"]).unwrap_or_default();
    let saved = arguments::parse_object("the saved text", &editor::edit(&(text + "\n"))?)?;
    Ok(Some(saved).filter(|saved| details["arguments"].as_object() != Some(saved)))
}

pub(crate) async fn prompt_line(prompt: &str, lines: &mut StdinLines) -> Option<String> {
    let mut out = anstream::stderr();
    let _ = write!(out, "{prompt}").and_then(|()| out.flush());
    lines.next().await
}

fn print_indented(text: &str) {
    for line in text.lines() {
        let _ = writeln!(anstream::stderr(), "    {}", strip_hidden(line));
    }
}

/// Says why a prompt ended without an answer from here.
pub(crate) async fn print_end_elsewhere(session: &Session, approval: &str) {
    let details = session.send_checked(Request::get(["approvals", approval])).await;
    let state = details.and_then(|response| response.json()).map(|details| pointer_text(&details, "/state"));
    eprintln!();
    print_indented(match state.as_deref() {
        Ok("timed_out") => "it expired unanswered",
        Ok("withdrawn") => "it was withdrawn",
        _ => "answered elsewhere",
    });
}

/// Waits until the call has ended without an answer from here: another client answered, or the approval expired.
async fn wait_until_ended(session: &Session, id: &str) {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let Ok(client) = session.client().await else { continue };
        let Ok(response) = client.send_checked(Request::get(["calls", id])).await else { continue };
        if response.json().is_ok_and(|call| has_ended(&call)) {
            return;
        }
    }
}

/// Polls the call until the condition holds, at most [`SETTLE_TIMEOUT`]; then returns it as it is.
pub(crate) async fn poll_until(
    session: &Session,
    id: &str,
    condition: impl Fn(&Value) -> bool,
) -> Result<Value, Failure> {
    let (deadline, mut pause) = (Instant::now() + SETTLE_TIMEOUT, Duration::from_millis(10));
    loop {
        let call = session.client().await?.send_checked(Request::get(["calls", id])).await?.json()?;
        if condition(&call) || Instant::now() >= deadline {
            return Ok(call);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL_INTERVAL);
    }
}

/// Waits for the outcome of a call, however long it takes.
///
/// # Errors
/// When the call cannot be fetched.
pub(crate) async fn wait_for_result(session: &Session, id: &str) -> Result<(Value, String), Failure> {
    let _spinner = Spinner::start(&session.printer, "running");
    let mut pause = Duration::from_millis(10);
    loop {
        let response = session.client().await?.send_checked(Request::get(["calls", id])).await?;
        let call = response.json()?;
        if has_ended(&call) {
            return Ok((call, response.text()));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL_INTERVAL);
    }
}

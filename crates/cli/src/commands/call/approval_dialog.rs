//! A call that waits for a person: asks the one at this terminal, or says how it is answered.
//!
//! In: the call as the API gave it. Out: the end of the call, or exit code 6 where nobody can be asked here.

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
    client::Request,
    editor,
    exit::Exit,
    failure::Failure,
    output::{Fields, Spinner, strip_control_chars, warning_sign},
    session::Session,
};

const WARNING_STYLE: Style = AnsiColor::Yellow.on_default().bold();
const BOLD: Style = Style::new().bold();
const CHOICES_PROMPT: &str = "  [y] allow once  [t] for this thread  [a] always  [e] edit  [n] deny  [?] more  > ";
/// How often it is looked whether the call has ended by itself.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long a command waits to see what became of its word.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);

/// Lets a call be approved here, if somebody sits here, and waits for its end.
pub(super) async fn resolve_interactively(
    session: &Session,
    call: &Value,
    document: &str,
    took_stdin: bool,
) -> Result<Exit, Failure> {
    let (id, approval) = (pointer_text(call, "/id"), pointer_text(call, "/approval/id"));
    let somebody = io::stdin().is_terminal() && io::stderr().is_terminal();
    if session.global.no_input || took_stdin || !somebody {
        if session.printer.json {
            session.printer.print_json(document);
        }
        return Err(approval_required(session, call));
    }
    let question = session.send_checked(Request::get(["approvals", &approval])).await?.json()?;
    session.set_interrupt_request(Some(Request::post(["calls", &id, "cancel"])));
    print_question(session, &question).await;
    let mut lines = StdinLines::spawn_reader();
    tokio::select! {
        answered = prompt_for_answer(session, &approval, &mut lines) => answered?,
        () = wait_until_ended(session, &id) => eprintln!(),
    }
    let (call, document) = wait_for_result(session, &id).await?;
    show_outcome(session, &call, &document)
}

/// Nobody can be asked here.
fn approval_required(session: &Session, call: &Value) -> Failure {
    let (id, approval) = (pointer_text(call, "/id"), pointer_text(call, "/approval/id"));
    let flags = session.target_flags();
    Failure::new("approval_required", format!("`{}` waits for a person", pointer_text(call, "/tool")))
        .help("approve it, or deny it:")
        .help(format!("toolhub approvals approve {approval}{flags}"))
        .help(format!("toolhub approvals deny {approval}{flags}"))
        .see_also("then", format!("toolhub calls show {id}{flags}"))
}

pub(crate) async fn print_question(session: &Session, question: &Value) {
    let (show, tool) = (&session.printer, pointer_text(question, "/tool"));
    let known = match session.send_checked(Request::get(["tools", &tool])).await {
        Ok(answer) => answer.json().unwrap_or_default(),
        Err(_) => Value::Null,
    };
    let destructive = if known["annotations"]["destructive"] == true { "   destructive" } else { "" };
    let sign = warning_sign(show.ascii);
    let about = format!("{}{destructive}", pointer_text(&known, "/kind"));
    let _ = writeln!(
        anstream::stderr(),
        "{WARNING_STYLE}{sign} {BOLD}{}{BOLD:#}{WARNING_STYLE} wants to run{WARNING_STYLE:#}    {about}",
        strip_control_chars(&tool)
    );
    let mut fields = Fields::default();
    for (name, value) in question["arguments"].as_object().into_iter().flatten() {
        fields.add(name, value.to_string());
    }
    fields.add("reason", pointer_text(question, "/reason"));
    let _ = write!(anstream::stderr(), "{}", fields.render(show.width, 4));
}

/// Asks until there is an answer that the hub takes, or has taken from somebody else.
pub(crate) async fn prompt_for_answer(
    session: &Session,
    approval: &str,
    lines: &mut StdinLines,
) -> Result<(), Failure> {
    loop {
        let line = prompt_line(CHOICES_PROMPT, lines).await;
        let mut said = approval_prompt::parse_reply(line.as_deref());
        if said == PromptReply::Edit {
            said = edit_arguments(session, approval, lines).await;
        }
        let body = match said {
            PromptReply::Once => json!({"outcome": "proceed_once"}),
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
            PromptReply::Edit | PromptReply::Empty => continue,
        };
        match session.send_checked(Request::post(["approvals", approval]).body(body)).await {
            Ok(_) => return Ok(()),
            // What was typed does not fit the tool, or a rule forbids it: the person may try again.
            Err(failure) if matches!(failure.code.as_str(), "arguments_invalid" | "invalid_request" | "forbidden") => {
                failure.print(&session.printer);
            }
            // Somebody else has answered, or it was too late: what matters now is what becomes of the call.
            Err(failure) if failure.code == "already_resolved" => {
                print_indented(&failure.message);
                return Ok(());
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// The arguments as the person writes them: in the editor they have named, or in a line where they have named none.
async fn edit_arguments(session: &Session, approval: &str, lines: &mut StdinLines) -> PromptReply {
    if !editor::is_configured() {
        let prompt = format!("  {} ", approval_prompt::EDIT_PROMPT);
        return prompt_line(&prompt, lines)
            .await
            .map_or_else(|| approval_prompt::parse_reply(None), |line| approval_prompt::parse_edited_arguments(&line));
    }
    match edit_in_editor(session, approval).await {
        Ok(Some(arguments)) => PromptReply::Edited(arguments.into()),
        Ok(None) => PromptReply::Invalid("you changed nothing, so nothing is answered; y allows it as it is".into()),
        Err(failure) => {
            failure.print(&session.printer);
            PromptReply::Empty
        }
    }
}

/// The arguments of a question, as the person saved them; none where they are as they were.
///
/// # Errors
/// When they cannot be edited, or what was saved is no JSON object.
pub(crate) async fn edit_in_editor(session: &Session, approval: &str) -> Result<Option<Map<String, Value>>, Failure> {
    let question = session.send_checked(Request::get(["approvals", approval])).await?.json()?;
    let shown = serde_json::to_string_pretty(&question["arguments"]).unwrap_or_default();
    let saved = super::parse_object("what you saved", &editor::edit(&(shown + "\n"))?)?;
    Ok(Some(saved).filter(|saved| question["arguments"].as_object() != Some(saved)))
}

pub(crate) async fn prompt_line(prompt: &str, lines: &mut StdinLines) -> Option<String> {
    let mut out = anstream::stderr();
    let _ = write!(out, "{prompt}").and_then(|()| out.flush());
    lines.next().await
}

fn print_indented(text: &str) {
    for line in text.lines() {
        let _ = writeln!(anstream::stderr(), "    {}", strip_control_chars(line));
    }
}

/// Waits until the call has ended without an answer from here: somebody else gave it, or its time is over.
async fn wait_until_ended(session: &Session, id: &str) {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let Ok(client) = session.client().await else { continue };
        let Ok(answer) = client.send_checked(Request::get(["calls", id])).await else { continue };
        if answer.json().is_ok_and(|call| has_ended(&call)) {
            return;
        }
    }
}

/// A call as it is once this is true of it; or as it is after a moment, for nobody waits here for ever.
pub(crate) async fn poll_until(session: &Session, id: &str, is: impl Fn(&Value) -> bool) -> Result<Value, Failure> {
    let (deadline, mut pause) = (Instant::now() + SETTLE_TIMEOUT, Duration::from_millis(10));
    loop {
        let call = session.client().await?.send_checked(Request::get(["calls", id])).await?.json()?;
        if is(&call) || Instant::now() >= deadline {
            return Ok(call);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL_INTERVAL);
    }
}

/// The end of a call, however long it takes.
///
/// # Errors
/// When it cannot be looked up.
pub(crate) async fn wait_for_result(session: &Session, id: &str) -> Result<(Value, String), Failure> {
    let _waits = Spinner::start(&session.printer, "running");
    let mut pause = Duration::from_millis(10);
    loop {
        let answer = session.client().await?.send_checked(Request::get(["calls", id])).await?;
        let call = answer.json()?;
        if has_ended(&call) {
            return Ok((call, answer.text()));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL_INTERVAL);
    }
}

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

use super::{super::list::text, ended, has_ended};
use crate::{
    ask::{self, Lines, Said},
    client::Request,
    editor,
    exit::Exit,
    failure::Failure,
    output::{Fields, Spinner, mark, plain},
    session::Session,
};

const WARNS: Style = AnsiColor::Yellow.on_default().bold();
const STRONG: Style = Style::new().bold();
const KEYS: &str = "  [y] allow once  [t] for this thread  [a] always  [e] edit  [n] deny  [?] more  > ";
/// How often it is looked whether the call has ended by itself.
const LOOK: Duration = Duration::from_millis(500);
/// How long a command waits to see what became of its word.
const MOMENT: Duration = Duration::from_secs(3);

/// Lets a call be approved here, if somebody sits here, and waits for its end.
pub(super) async fn settle(session: &Session, call: &Value, document: &str, took_stdin: bool) -> Result<Exit, Failure> {
    let (id, approval) = (text(call, "/id"), text(call, "/approval/id"));
    let somebody = io::stdin().is_terminal() && io::stderr().is_terminal();
    if session.global.no_input || took_stdin || !somebody {
        if session.show.json {
            session.show.document(document);
        }
        return Err(waits(session, call));
    }
    let question = session.ask(Request::get(["approvals", &approval])).await?.value()?;
    session.if_interrupted(Some(Request::post(["calls", &id, "cancel"])));
    show(session, &question).await;
    let mut lines = Lines::typed();
    tokio::select! {
        answered = answer(session, &approval, &mut lines) => answered?,
        () = ends(session, &id) => eprintln!(),
    }
    let (call, document) = end(session, &id).await?;
    ended(session, &call, &document)
}

/// Nobody can be asked here.
fn waits(session: &Session, call: &Value) -> Failure {
    let (id, approval) = (text(call, "/id"), text(call, "/approval/id"));
    let flags = session.flags();
    Failure::new("approval_required", format!("`{}` waits for a person", text(call, "/tool")))
        .help("approve it, or deny it:")
        .help(format!("toolhub approvals approve {approval}{flags}"))
        .help(format!("toolhub approvals deny {approval}{flags}"))
        .see("then", format!("toolhub calls show {id}{flags}"))
}

pub(crate) async fn show(session: &Session, question: &Value) {
    let (show, tool) = (&session.show, text(question, "/tool"));
    let known = match session.ask(Request::get(["tools", &tool])).await {
        Ok(answer) => answer.value().unwrap_or_default(),
        Err(_) => Value::Null,
    };
    let destructive = if known["annotations"]["destructive"] == true { "   destructive" } else { "" };
    let sign = mark(show.ascii);
    let about = format!("{}{destructive}", text(&known, "/kind"));
    let _ = writeln!(
        anstream::stderr(),
        "{WARNS}{sign} {STRONG}{}{STRONG:#}{WARNS} wants to run{WARNS:#}    {about}",
        plain(&tool)
    );
    let mut fields = Fields::default();
    for (name, value) in question["arguments"].as_object().into_iter().flatten() {
        fields.add(name, value.to_string());
    }
    fields.add("reason", text(question, "/reason"));
    let _ = write!(anstream::stderr(), "{}", fields.lines(show.width, 4));
}

/// Asks until there is an answer that the hub takes, or has taken from somebody else.
pub(crate) async fn answer(session: &Session, approval: &str, lines: &mut Lines) -> Result<(), Failure> {
    loop {
        let line = next(KEYS, lines).await;
        let mut said = ask::read(line.as_deref());
        if said == Said::Edit {
            said = edit(session, approval, lines).await;
        }
        let body = match said {
            Said::Once => json!({"outcome": "proceed_once"}),
            Said::Thread => json!({"outcome": "proceed_always"}),
            Said::Always => json!({"outcome": "proceed_always_tool"}),
            Said::Edited(arguments) => json!({"outcome": "modify_with_editor", "arguments": arguments}),
            Said::Deny(None) => json!({"outcome": "cancel"}),
            Said::Deny(Some(why)) => json!({"outcome": "cancel", "reason": why}),
            Said::Help => {
                say(ask::HELP);
                continue;
            }
            Said::Unclear(text) => {
                say(&text);
                continue;
            }
            Said::Edit | Said::Nothing => continue,
        };
        match session.ask(Request::post(["approvals", approval]).body(body)).await {
            Ok(_) => return Ok(()),
            // What was typed does not fit the tool, or a rule forbids it: the person may try again.
            Err(failure) if matches!(failure.code.as_str(), "arguments_invalid" | "invalid_request" | "forbidden") => {
                failure.print(&session.show);
            }
            // Somebody else has answered, or it was too late: what matters now is what becomes of the call.
            Err(failure) if failure.code == "already_resolved" => {
                say(&failure.message);
                return Ok(());
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// The arguments as the person writes them: in the editor they have named, or in a line where they have named none.
async fn edit(session: &Session, approval: &str, lines: &mut Lines) -> Said {
    if !editor::is_named() {
        let prompt = format!("  {} ", ask::EDIT);
        return next(&prompt, lines).await.map_or_else(|| ask::read(None), |line| ask::edited(&line));
    }
    match in_editor(session, approval).await {
        Ok(Some(arguments)) => Said::Edited(arguments.into()),
        Ok(None) => Said::Unclear("you changed nothing, so nothing is answered; y allows it as it is".into()),
        Err(failure) => {
            failure.print(&session.show);
            Said::Nothing
        }
    }
}

/// The arguments of a question, as the person saved them; none where they are as they were.
///
/// # Errors
/// When they cannot be edited, or what was saved is no JSON object.
pub(crate) async fn in_editor(session: &Session, approval: &str) -> Result<Option<Map<String, Value>>, Failure> {
    let question = session.ask(Request::get(["approvals", approval])).await?.value()?;
    let shown = serde_json::to_string_pretty(&question["arguments"]).unwrap_or_default();
    let saved = super::object("what you saved", &editor::edit(&(shown + "\n"))?)?;
    Ok(Some(saved).filter(|saved| question["arguments"].as_object() != Some(saved)))
}

pub(crate) async fn next(prompt: &str, lines: &mut Lines) -> Option<String> {
    let mut out = anstream::stderr();
    let _ = write!(out, "{prompt}").and_then(|()| out.flush());
    lines.next().await
}

fn say(text: &str) {
    for line in text.lines() {
        let _ = writeln!(anstream::stderr(), "    {}", plain(line));
    }
}

/// Waits until the call has ended without an answer from here: somebody else gave it, or its time is over.
async fn ends(session: &Session, id: &str) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Ok(client) = session.client().await else { continue };
        let Ok(answer) = client.ask(Request::get(["calls", id])).await else { continue };
        if answer.value().is_ok_and(|call| has_ended(&call)) {
            return;
        }
    }
}

/// A call as it is once this is true of it; or as it is after a moment, for nobody waits here for ever.
pub(crate) async fn once(session: &Session, id: &str, is: impl Fn(&Value) -> bool) -> Result<Value, Failure> {
    let (deadline, mut pause) = (Instant::now() + MOMENT, Duration::from_millis(10));
    loop {
        let call = session.client().await?.ask(Request::get(["calls", id])).await?.value()?;
        if is(&call) || Instant::now() >= deadline {
            return Ok(call);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOK);
    }
}

/// The end of a call, however long it takes.
///
/// # Errors
/// When it cannot be looked up.
pub(crate) async fn end(session: &Session, id: &str) -> Result<(Value, String), Failure> {
    let _waits = Spinner::start(&session.show, "running");
    let mut pause = Duration::from_millis(10);
    loop {
        let answer = session.client().await?.ask(Request::get(["calls", id])).await?;
        let call = answer.value()?;
        if has_ended(&call) {
            return Ok((call, answer.text()));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOK);
    }
}

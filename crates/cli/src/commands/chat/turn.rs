//! One message, from being sent to the end of its run.
//!
//! In: the request that answers with a stream of events. Out: how the run ended. Questions are asked here, in the middle of the
//! stream; Ctrl-C cancels the run and waits for its end, a second one waits for nothing.

use std::{collections::VecDeque, pin::pin};

use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{super::list::text, screen::Screen};
use crate::{
    ask::Lines,
    client::{Event, Events, Request, Streamed},
    commands::call::question,
    failure::Failure,
    output::Spinner,
    session::Session,
};

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The agent has answered.
    Completed,
    /// Somebody cancelled the run.
    Cancelled,
    /// The person did, here.
    Interrupted,
}

/// The person at the keyboard, if there is one; and the questions that were asked before anybody listened.
pub(super) struct Keyboard {
    somebody: bool,
    /// Whether tools that only read are allowed without a question.
    allows_reads: bool,
    lines: Option<Lines>,
    interrupts: Interrupts,
    owed: VecDeque<String>,
}

/// Ctrl-C, from the moment this is made: none is lost between two waits.
struct Interrupts(Option<Signal>);

impl Interrupts {
    async fn next(&mut self) {
        match &mut self.0 {
            Some(signal) => drop(signal.recv().await),
            None => std::future::pending().await,
        }
    }
}

impl Keyboard {
    pub(super) fn new(somebody: bool, allows_reads: bool) -> Self {
        let interrupts = Interrupts(signal(SignalKind::interrupt()).ok());
        Self { somebody, allows_reads, lines: None, interrupts, owed: VecDeque::new() }
    }

    /// These questions wait already.
    pub(super) fn owed(&mut self, questions: VecDeque<String>) {
        self.owed = questions;
    }

    /// The next line; none at the end of input, and where the person interrupts.
    pub(super) async fn line(&mut self, prompt: &str) -> Option<String> {
        let lines = self.lines.get_or_insert_with(Lines::typed);
        tokio::select! {
            line = question::next(prompt, lines) => line,
            () = self.interrupts.next() => None,
        }
    }
}

/// Sends a request and follows the run it is about: this one, or the one that begins with it.
///
/// # Errors
/// When it was refused, the run failed, or it waits for a person and nobody can be asked here.
pub(super) async fn turn(
    session: &Session,
    request: Request,
    mut run: Option<String>,
    screen: &mut Screen,
    keyboard: &mut Keyboard,
) -> Result<Ended, Failure> {
    screen.begin();
    let client = session.client().await?;
    let mut events = match client.stream(request).await? {
        Streamed::Events(events) => events,
        Streamed::Answer(answer) => {
            return Err(match answer.good() {
                Err(refused) => refused,
                Ok(_) => Failure::unexpected("the answer is no stream of events"),
            });
        }
    };
    // What was heard while somebody was asked.
    let mut heard = VecDeque::new();
    let mut stopped = false;
    loop {
        if let Some(approval) = keyboard.owed.pop_front() {
            let settled = settle(session, &approval, run.as_deref(), screen, keyboard, &mut events, &mut heard).await?;
            if let (Settled::Interrupted, Some(id)) = (settled, run.as_deref()) {
                stopped = true;
                keyboard.owed.clear();
                client.send(Request::post(["runs", id, "cancel"])).await?;
            }
        }
        let event = match heard.pop_front() {
            Some(event) => event,
            None => {
                let _waits = screen.at_line_start().then(|| Spinner::start(&session.show, "working"));
                tokio::select! {
                    event = events.next() => match event? {
                        Some(event) => event,
                        None => return Err(broke_off(session, run.as_deref())),
                    },
                    () = keyboard.interrupts.next() => {
                        let Some(id) = run.as_deref().filter(|_| !stopped) else { return Ok(Ended::Interrupted) };
                        stopped = true;
                        client.send(Request::post(["runs", id, "cancel"])).await?;
                        continue;
                    }
                }
            }
        };
        run = run.or_else(|| event.data["runId"].as_str().map(String::from));
        screen.show(&event);
        match event.name.as_str() {
            "approval.requested" if !stopped => keyboard.owed.push_back(text(&event.data, "/approvalId")),
            "run.completed" => {
                screen.end();
                return Ok(match text(&event.data, "/status").as_str() {
                    "cancelled" if stopped => Ended::Interrupted,
                    "cancelled" => Ended::Cancelled,
                    _ => Ended::Completed,
                });
            }
            "run.failed" => {
                screen.end();
                let (code, message) = (text(&event.data, "/code"), text(&event.data, "/message"));
                let failure = Failure::new(&code, format!("the agent could not answer: {message}"));
                let ours = session.global.server.is_none() && matches!(&*code, "model_unreachable" | "model_refused");
                let failure = if ours { failure.help(format!("toolhub doctor{}", session.flags())) } else { failure };
                return Err(
                    failure.see("run", format!("toolhub runs show {}{}", text(&event.data, "/runId"), session.flags()))
                );
            }
            _ => {}
        }
    }
}

/// What became of a question.
enum Settled {
    /// It is answered, here or elsewhere.
    Answered,
    /// The person wants to hear no more of it.
    Interrupted,
}

/// Has a question answered by whoever sits here; what is heard meanwhile is kept. If it is answered elsewhere, that is as good.
async fn settle(
    session: &Session,
    approval: &str,
    run: Option<&str>,
    screen: &mut Screen,
    keyboard: &mut Keyboard,
    events: &mut Events,
    heard: &mut VecDeque<Event>,
) -> Result<Settled, Failure> {
    let question = session.ask(Request::get(["approvals", approval])).await?.value()?;
    if text(&question, "/state") != "pending" {
        return Ok(Settled::Answered);
    }
    screen.end();
    if keyboard.allows_reads && reads_only(session, &text(&question, "/tool")).await {
        session.ask(Request::post(["approvals", approval]).body(json!({"outcome": "proceed_once"}))).await?;
        session.show.say(&format!("allowed, because it only reads: {}", text(&question, "/tool")));
        return Ok(Settled::Answered);
    }
    if !keyboard.somebody {
        return Err(waits(session, &text(&question, "/tool"), approval, run));
    }
    question::show(session, &question).await;
    let lines = keyboard.lines.get_or_insert_with(Lines::typed);
    let about = |event: &Event| text(&event.data, "/approvalId") == approval;
    // One question, however much is heard meanwhile: it is not asked again for that.
    let mut answering = pin!(question::answer(session, approval, lines));
    loop {
        tokio::select! {
            answered = &mut answering => return answered.map(|()| Settled::Answered),
            () = keyboard.interrupts.next() => return Ok(Settled::Interrupted),
            event = events.next() => {
                let Some(event) = event? else { return Ok(Settled::Answered) };
                let over = (event.name == "approval.resolved" && about(&event)) || event.name.starts_with("run.");
                heard.push_back(event);
                if over {
                    eprintln!();
                    return Ok(Settled::Answered);
                }
            }
        }
    }
}

/// Whether the hub takes a tool for one that changes nothing.
async fn reads_only(session: &Session, tool: &str) -> bool {
    let known = session.ask(Request::get(["tools", tool])).await.and_then(|answer| answer.value());
    known.is_ok_and(|tool| tool["annotations"]["readOnly"] == true)
}

/// Nobody can be asked here.
fn waits(session: &Session, tool: &str, approval: &str, run: Option<&str>) -> Failure {
    let flags = session.flags();
    let failure = Failure::new("approval_required", format!("`{tool}` waits for a person"))
        .help("approve it, or deny it, and the run goes on:")
        .help(format!("toolhub approvals approve {approval}{flags}"))
        .help(format!("toolhub approvals deny {approval}{flags}"));
    match run {
        Some(run) => failure.see("then", format!("toolhub runs show {run}{flags}")),
        None => failure,
    }
}

fn broke_off(session: &Session, run: Option<&str>) -> Failure {
    let failure =
        Failure::new("unreachable", "the server went away in the middle of the run; the run goes on by itself");
    match run {
        Some(run) => failure.see("run", format!("toolhub runs show {run}{}", session.flags())),
        None => failure,
    }
}

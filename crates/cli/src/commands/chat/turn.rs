//! One message, from being sent to the end of its run.
//!
//! In: the request that answers with a stream of events. Out: how the run ended. Questions are asked here, in the middle of the
//! stream; Ctrl-C cancels the run and waits for its end, a second one waits for nothing.

use std::{collections::VecDeque, pin::pin};

use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{super::paging::pointer_text, screen::Screen};
use crate::{
    approval_prompt::StdinLines,
    client::{Event, EventStream, Request, StreamResponse},
    commands::call::approval_dialog,
    failure::Failure,
    output::Spinner,
    session::Session,
};

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnEnd {
    /// The agent has answered.
    Completed,
    /// Somebody cancelled the run.
    Cancelled,
    /// The person did, here.
    Interrupted,
}

/// The person at the keyboard, if there is one; and the questions that were asked before anybody listened.
pub(super) struct Keyboard {
    is_interactive: bool,
    /// Whether tools that only read are allowed without a question.
    auto_approve_reads: bool,
    lines: Option<StdinLines>,
    interrupts: Interrupts,
    pending_approvals: VecDeque<String>,
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
        Self {
            is_interactive: somebody,
            auto_approve_reads: allows_reads,
            lines: None,
            interrupts,
            pending_approvals: VecDeque::new(),
        }
    }

    /// These questions wait already.
    pub(super) fn set_pending_approvals(&mut self, questions: VecDeque<String>) {
        self.pending_approvals = questions;
    }

    /// The next line; none at the end of input, and where the person interrupts.
    pub(super) async fn read_line(&mut self, prompt: &str) -> Option<String> {
        let lines = self.lines.get_or_insert_with(StdinLines::spawn_reader);
        tokio::select! {
            line = approval_dialog::prompt_line(prompt, lines) => line,
            () = self.interrupts.next() => None,
        }
    }
}

/// Sends a request and follows the run it is about: this one, or the one that begins with it.
///
/// # Errors
/// When it was refused, the run failed, or it waits for a person and nobody can be asked here.
pub(super) async fn run_turn(
    session: &Session,
    request: Request,
    mut run: Option<String>,
    screen: &mut Screen,
    keyboard: &mut Keyboard,
) -> Result<TurnEnd, Failure> {
    screen.start_turn();
    let client = session.client().await?;
    let mut events = match client.stream(request).await? {
        StreamResponse::Events(events) => events,
        StreamResponse::Response(answer) => {
            return Err(match answer.error_for_status() {
                Err(refused) => refused,
                Ok(_) => Failure::unexpected("the answer is no stream of events"),
            });
        }
    };
    // What was heard while somebody was asked.
    let mut heard = VecDeque::new();
    let mut stopped = false;
    loop {
        if let Some(approval) = keyboard.pending_approvals.pop_front() {
            let settled =
                resolve_approval(session, &approval, run.as_deref(), screen, keyboard, &mut events, &mut heard).await?;
            if let (ApprovalEnd::Interrupted, Some(id)) = (settled, run.as_deref()) {
                stopped = true;
                keyboard.pending_approvals.clear();
                client.send(Request::post(["runs", id, "cancel"])).await?;
            }
        }
        let event = match heard.pop_front() {
            Some(event) => event,
            None => {
                let _waits = screen.at_line_start().then(|| Spinner::start(&session.printer, "working"));
                tokio::select! {
                    event = events.next() => match event? {
                        Some(event) => event,
                        None => return Err(stream_interrupted(session, run.as_deref())),
                    },
                    () = keyboard.interrupts.next() => {
                        let Some(id) = run.as_deref().filter(|_| !stopped) else { return Ok(TurnEnd::Interrupted) };
                        stopped = true;
                        client.send(Request::post(["runs", id, "cancel"])).await?;
                        continue;
                    }
                }
            }
        };
        run = run.or_else(|| event.data["runId"].as_str().map(String::from));
        screen.print_event(&event);
        match event.name.as_str() {
            "approval.requested" if !stopped => {
                keyboard.pending_approvals.push_back(pointer_text(&event.data, "/approvalId"));
            }
            "run.completed" => {
                screen.flush();
                return Ok(match pointer_text(&event.data, "/status").as_str() {
                    "cancelled" if stopped => TurnEnd::Interrupted,
                    "cancelled" => TurnEnd::Cancelled,
                    _ => TurnEnd::Completed,
                });
            }
            "run.failed" => {
                screen.flush();
                let (code, message) = (pointer_text(&event.data, "/code"), pointer_text(&event.data, "/message"));
                let failure = Failure::new(&code, format!("the agent could not answer: {message}"));
                let ours = session.global.server.is_none() && matches!(&*code, "model_unreachable" | "model_refused");
                let failure =
                    if ours { failure.help(format!("toolhub doctor{}", session.target_flags())) } else { failure };
                return Err(failure.see_also(
                    "run",
                    format!("toolhub runs show {}{}", pointer_text(&event.data, "/runId"), session.target_flags()),
                ));
            }
            _ => {}
        }
    }
}

/// What became of a question.
enum ApprovalEnd {
    /// It is answered, here or elsewhere.
    Answered,
    /// The person wants to hear no more of it.
    Interrupted,
}

/// Has a question answered by whoever sits here; what is heard meanwhile is kept. If it is answered elsewhere, that is as good.
async fn resolve_approval(
    session: &Session,
    approval: &str,
    run: Option<&str>,
    screen: &mut Screen,
    keyboard: &mut Keyboard,
    events: &mut EventStream,
    heard: &mut VecDeque<Event>,
) -> Result<ApprovalEnd, Failure> {
    let question = session.send_checked(Request::get(["approvals", approval])).await?.json()?;
    if pointer_text(&question, "/state") != "pending" {
        return Ok(ApprovalEnd::Answered);
    }
    screen.flush();
    if keyboard.auto_approve_reads && is_read_only(session, &pointer_text(&question, "/tool")).await {
        session.send_checked(Request::post(["approvals", approval]).body(json!({"outcome": "proceed_once"}))).await?;
        session.printer.note(&format!("allowed, because it only reads: {}", pointer_text(&question, "/tool")));
        return Ok(ApprovalEnd::Answered);
    }
    if !keyboard.is_interactive {
        return Err(approval_required(session, &pointer_text(&question, "/tool"), approval, run));
    }
    approval_dialog::print_question(session, &question).await;
    let lines = keyboard.lines.get_or_insert_with(StdinLines::spawn_reader);
    let about = |event: &Event| pointer_text(&event.data, "/approvalId") == approval;
    // One question, however much is heard meanwhile: it is not asked again for that.
    let mut answering = pin!(approval_dialog::prompt_for_answer(session, approval, lines));
    loop {
        tokio::select! {
            answered = &mut answering => return answered.map(|()| ApprovalEnd::Answered),
            () = keyboard.interrupts.next() => return Ok(ApprovalEnd::Interrupted),
            event = events.next() => {
                let Some(event) = event? else { return Ok(ApprovalEnd::Answered) };
                let over = (event.name == "approval.resolved" && about(&event)) || event.name.starts_with("run.");
                heard.push_back(event);
                if over {
                    eprintln!();
                    return Ok(ApprovalEnd::Answered);
                }
            }
        }
    }
}

/// Whether the hub takes a tool for one that changes nothing.
async fn is_read_only(session: &Session, tool: &str) -> bool {
    let known = session.send_checked(Request::get(["tools", tool])).await.and_then(|answer| answer.json());
    known.is_ok_and(|tool| tool["annotations"]["readOnly"] == true)
}

/// Nobody can be asked here.
fn approval_required(session: &Session, tool: &str, approval: &str, run: Option<&str>) -> Failure {
    let flags = session.target_flags();
    let failure = Failure::new("approval_required", format!("`{tool}` waits for a person"))
        .help("approve it, or deny it, and the run goes on:")
        .help(format!("toolhub approvals approve {approval}{flags}"))
        .help(format!("toolhub approvals deny {approval}{flags}"));
    match run {
        Some(run) => failure.see_also("then", format!("toolhub runs show {run}{flags}")),
        None => failure,
    }
}

fn stream_interrupted(session: &Session, run: Option<&str>) -> Failure {
    let failure =
        Failure::new("unreachable", "the server went away in the middle of the run; the run goes on by itself");
    match run {
        Some(run) => failure.see_also("run", format!("toolhub runs show {run}{}", session.target_flags())),
        None => failure,
    }
}

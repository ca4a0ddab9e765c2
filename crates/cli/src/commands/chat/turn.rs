//! One chat turn: sends a message and follows its run to the end.
//!
//! In: a request whose response is an event stream. Out: how the run ended. Approvals are prompted for in the middle of the stream;
//! Ctrl-C cancels the run and waits for its end, a second one does not wait.

use std::{collections::VecDeque, pin::pin};

use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{super::paging::pointer_text, screen::Screen};
use crate::{
    approval_prompt::StdinLines,
    client::{Event, EventStream, Request, StreamResponse},
    commands::call::approval_dialog,
    failure::Failure,
    line_editor::LineEditor,
    output::Spinner,
    session::Session,
};

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnEnd {
    /// The agent has answered.
    Completed,
    /// The run was cancelled elsewhere.
    Cancelled,
    /// The user cancelled the run here.
    Interrupted,
}

/// The user's input, if there is a terminal; and the approvals that were requested before this process listened.
pub(super) struct Keyboard {
    is_interactive: bool,
    /// Whether calls of read-only tools are approved without a prompt.
    auto_approve_reads: bool,
    /// The editor of messages, from the first one on; `None` inside if the terminal cannot be used.
    editor: Option<Option<LineEditor>>,
    /// The reader of other prompts.
    lines: Option<StdinLines>,
    interrupts: Interrupts,
    pending_approvals: VecDeque<String>,
}

/// Ctrl-C signals. Listens from its creation, so that none is lost between two waits.
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
    pub(super) fn new(is_interactive: bool, auto_approve_reads: bool) -> Self {
        let interrupts = Interrupts(signal(SignalKind::interrupt()).ok());
        Self {
            is_interactive,
            auto_approve_reads,
            editor: None,
            lines: None,
            interrupts,
            pending_approvals: VecDeque::new(),
        }
    }

    /// Sets the approvals that are pending already.
    pub(super) fn set_pending_approvals(&mut self, approvals: VecDeque<String>) {
        self.pending_approvals = approvals;
    }

    /// The next message; `None` at the end of input, or on Ctrl-C.
    pub(super) async fn read_message(&mut self, prompt: &str) -> Option<String> {
        // A prompt that ended without an answer may still read stdin; the next line goes there.
        let is_reading = self.lines.as_ref().is_some_and(StdinLines::is_reading);
        if let Some(editor) = self.editor.get_or_insert_with(LineEditor::spawn).as_mut().filter(|_| !is_reading) {
            return editor.read_line(prompt).await;
        }
        let lines = self.lines.get_or_insert_with(StdinLines::spawn_reader);
        tokio::select! {
            line = approval_dialog::prompt_line(prompt, lines) => line,
            () = self.interrupts.next() => None,
        }
    }
}

/// Sends a request and follows its run: the given one, or the one that the request starts.
///
/// # Errors
/// When the request is refused, the run fails, or it requires an approval and no user can be prompted.
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
        StreamResponse::Response(response) => {
            return Err(match response.error_for_status() {
                Err(failure) => failure,
                Ok(_) => Failure::unexpected("the response is not an event stream"),
            });
        }
    };
    // Events received while a prompt was open.
    let mut buffered = VecDeque::new();
    let mut cancelling = false;
    loop {
        if let Some(approval) = keyboard.pending_approvals.pop_front() {
            let end =
                resolve_approval(session, &approval, run.as_deref(), screen, keyboard, &mut events, &mut buffered)
                    .await?;
            if let (ApprovalEnd::Interrupted, Some(id)) = (end, run.as_deref()) {
                cancelling = true;
                keyboard.pending_approvals.clear();
                client.send(Request::post(["runs", id, "cancel"])).await?;
            }
        }
        let event = match buffered.pop_front() {
            Some(event) => event,
            None => {
                let _spinner = screen.at_line_start().then(|| Spinner::start(&session.printer, "working"));
                tokio::select! {
                    event = events.next() => match event? {
                        Some(event) => event,
                        None => return Err(stream_interrupted(session, run.as_deref())),
                    },
                    () = keyboard.interrupts.next() => {
                        let Some(id) = run.as_deref().filter(|_| !cancelling) else { return Ok(TurnEnd::Interrupted) };
                        cancelling = true;
                        client.send(Request::post(["runs", id, "cancel"])).await?;
                        continue;
                    }
                }
            }
        };
        run = run.or_else(|| event.data["runId"].as_str().map(String::from));
        screen.print_event(&event);
        match event.name.as_str() {
            "approval.requested" if !cancelling => {
                keyboard.pending_approvals.push_back(pointer_text(&event.data, "/approvalId"));
            }
            "run.completed" => {
                screen.flush();
                return Ok(match pointer_text(&event.data, "/status").as_str() {
                    "cancelled" if cancelling => TurnEnd::Interrupted,
                    "cancelled" => TurnEnd::Cancelled,
                    _ => TurnEnd::Completed,
                });
            }
            "run.failed" => {
                screen.flush();
                let (code, message) = (pointer_text(&event.data, "/code"), pointer_text(&event.data, "/message"));
                let failure = Failure::new(&code, format!("the agent could not answer: {message}"));
                let is_local =
                    session.global.server.is_none() && matches!(&*code, "model_unreachable" | "model_refused");
                let failure =
                    if is_local { failure.help(format!("toolhub doctor{}", session.target_flags())) } else { failure };
                return Err(failure.see_also(
                    "run",
                    format!("toolhub runs show {}{}", pointer_text(&event.data, "/runId"), session.target_flags()),
                ));
            }
            _ => {}
        }
    }
}

/// How an approval ended.
enum ApprovalEnd {
    /// Answered, here or elsewhere.
    Answered,
    /// The user pressed Ctrl-C.
    Interrupted,
}

/// Prompts for an approval and buffers the events received meanwhile. Returns too if it is answered elsewhere.
async fn resolve_approval(
    session: &Session,
    approval: &str,
    run: Option<&str>,
    screen: &mut Screen,
    keyboard: &mut Keyboard,
    events: &mut EventStream,
    buffered: &mut VecDeque<Event>,
) -> Result<ApprovalEnd, Failure> {
    let details = session.send_checked(Request::get(["approvals", approval])).await?.json()?;
    if pointer_text(&details, "/state") != "pending" {
        return Ok(ApprovalEnd::Answered);
    }
    screen.flush();
    if keyboard.auto_approve_reads && is_read_only(session, &pointer_text(&details, "/tool")).await {
        session.send_checked(Request::post(["approvals", approval]).body(json!({"outcome": "proceed_once"}))).await?;
        session
            .printer
            .note(&format!("approved automatically, because it is read-only: {}", pointer_text(&details, "/tool")));
        return Ok(ApprovalEnd::Answered);
    }
    if !keyboard.is_interactive {
        return Err(approval_required(session, &details, run).await);
    }
    approval_dialog::print_question(session, &details).await;
    let lines = keyboard.lines.get_or_insert_with(StdinLines::spawn_reader);
    let concerns = |event: &Event| pointer_text(&event.data, "/approvalId") == approval;
    // One prompt future for all loop iterations, so that an event does not print the prompt again.
    let mut prompt = pin!(approval_dialog::prompt_for_answer(session, &details, lines));
    loop {
        tokio::select! {
            answered = &mut prompt => return answered.map(|()| ApprovalEnd::Answered),
            () = keyboard.interrupts.next() => return Ok(ApprovalEnd::Interrupted),
            event = events.next() => {
                let Some(event) = event? else { return Ok(ApprovalEnd::Answered) };
                let is_resolved = event.name == "approval.resolved" && concerns(&event);
                let is_over = event.name.starts_with("run.");
                buffered.push_back(event);
                if is_resolved || is_over {
                    approval_dialog::print_end_elsewhere(session, approval).await;
                    return Ok(ApprovalEnd::Answered);
                }
            }
        }
    }
}

/// Whether the tool is annotated as read-only.
async fn is_read_only(session: &Session, tool: &str) -> bool {
    let tool_info = session.send_checked(Request::get(["tools", tool])).await.and_then(|response| response.json());
    tool_info.is_ok_and(|tool| tool["annotations"]["readOnly"] == true)
}

/// The failure where no user can be prompted.
async fn approval_required(session: &Session, details: &Value, run: Option<&str>) -> Failure {
    let (flags, approval) = (session.target_flags(), pointer_text(details, "/id"));
    let tool = pointer_text(details, "/tool");
    let failure = Failure::new("approval_required", format!("`{tool}` requires approval"))
        .help("approve or deny it, and the run continues:")
        .help(format!("toolhub approvals approve {approval}{flags}"))
        .help(format!("toolhub approvals deny {approval}{flags}"));
    let failure = match run {
        Some(run) => failure.see_also("then", format!("toolhub runs show {run}{flags}")),
        None => failure,
    };
    match approval_dialog::page_url(session, details).await {
        Some(url) => failure.help(format!("page: {url}")),
        None => failure,
    }
}

fn stream_interrupted(session: &Session, run: Option<&str>) -> Failure {
    let failure = Failure::new("unreachable", "the connection to the server was lost; the run continues there");
    match run {
        Some(run) => failure.see_also("run", format!("toolhub runs show {run}{}", session.target_flags())),
        None => failure,
    }
}

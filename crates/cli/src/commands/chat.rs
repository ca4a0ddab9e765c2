//! `chat`: a conversation with an agent.
//!
//! In: lines typed by the user, or one prompt. Out: the agent's text on stdout, its activity on stderr. `turn` runs one message to
//! its end, `screen` prints its events. A conversation is a thread, so it can be continued later from anywhere.

mod screen;
mod turn;

use std::io::{self, IsTerminal, Read as _};

use serde_json::{Value, json};

use super::{paging::pointer_text, threads};
use crate::{client::Request, exit::Exit, failure::Failure, session::Session};
use screen::Screen;
use turn::{Keyboard, TurnEnd, run_turn};

/// Chat with an agent.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolhub chat                                    a conversation; Ctrl-D ends it, Ctrl-C cancels the run
  toolhub chat \"weather in Oslo, then a report\"
  toolhub chat -p \"what is 2+3*4?\"                only the answer, for scripts
  toolhub chat --thread t1                        continue a conversation")]
pub(crate) struct Chat {
    /// First message; read from stdin if that is not a terminal
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// Print only the answer on stdout, then exit; notes go to stderr
    #[arg(short, long)]
    print: bool,
    /// Agent to chat with [default: the one of the thread, or `default`]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Approve calls of read-only tools without asking
    #[arg(long)]
    yes_readonly: bool,
}

/// Input lines that end a conversation.
const EXIT_COMMANDS: [&str; 4] = ["/exit", "/quit", "/q", "/bye"];
/// The answer to `/help`.
const HELP: &str = "\
/help   this list
/tools  the tools of this conversation and their status
/exit   end the conversation; Ctrl-D does too
Up and down arrow bring back earlier lines. Everything else is sent to the agent.";

pub(crate) async fn run(session: &Session, chat: Chat) -> Result<Exit, Failure> {
    let from_terminal = io::stdin().is_terminal();
    let first = match chat.prompt {
        Some(prompt) => Some(prompt),
        None if from_terminal => None,
        None => {
            let mut all = String::new();
            let read_failure = |error| Failure::usage(format!("cannot read stdin: {error}"));
            io::stdin().read_to_string(&mut all).map_err(read_failure)?;
            Some(all)
        }
    };
    let empty = first.as_ref().map_or(chat.print, |prompt| prompt.trim().is_empty());
    if empty {
        return Err(Failure::usage("no prompt given").help("toolhub chat -p \"what is 2+3*4?\""));
    }
    let once = chat.print || session.printer.json || !from_terminal || !io::stdout().is_terminal();
    let is_interactive = from_terminal && io::stderr().is_terminal() && !session.global.no_input;
    let mut keyboard = Keyboard::new(is_interactive, chat.yes_readonly);
    let mut screen = Screen::new(session.printer.clone(), chat.print);
    let thread = match &session.global.thread {
        Some(thread) => {
            // With --print, only the new answer is wanted.
            screen.mute(chat.print);
            let resumed = resume_thread(session, thread, &mut screen, &mut keyboard).await;
            resumed.map_err(|failure| match first {
                Some(_) => failure.help("your message was not sent; send it again when the run has ended"),
                None => failure,
            })?;
            screen.mute(false);
            thread.clone()
        }
        None => pointer_text(&session.send_checked(Request::post(["threads"]).body(json!({}))).await?.json()?, "/id"),
    };
    let message = |content: &str| {
        let mut body = json!({ "content": content });
        if let Some(agent) = &chat.agent {
            body["agent"] = agent.as_str().into();
        }
        Request::post(["threads", &thread, "messages"]).body(body)
    };
    let print_resume_command = |session: &Session| {
        if session.global.thread.is_none() {
            session.printer.note(&format!("continue with: toolhub chat --thread {thread}{}", session.target_flags()));
        }
    };
    if let Some(prompt) = &first {
        let end = run_turn(session, message(prompt.trim()), None, &mut screen, &mut keyboard).await;
        if once {
            return match end? {
                TurnEnd::Completed => {
                    print_resume_command(session);
                    Ok(Exit::Success)
                }
                TurnEnd::Cancelled => Err(Failure::new("cancelled", "the run was cancelled")),
                TurnEnd::Interrupted => Ok(Exit::Interrupted),
            };
        }
        report_turn(session, end)?;
    }
    if once {
        return Err(Failure::usage("no prompt given").help("toolhub chat \"what is 2+3*4?\""));
    }
    session.printer.note("/help lists the commands. Ctrl-D ends the conversation, Ctrl-C cancels the run.");
    while let Some(line) = keyboard.read_message("you> ").await {
        match line.trim() {
            "" => {}
            word if EXIT_COMMANDS.contains(&word) => break,
            "/help" => session.printer.note(HELP),
            "/tools" => show_tools(session, &thread).await,
            word if is_command(word) => session.printer.note(&format!("there is no command {word}\n{HELP}")),
            text => report_turn(session, run_turn(session, message(text), None, &mut screen, &mut keyboard).await)?,
        }
    }
    print_resume_command(session);
    Ok(Exit::Success)
}

/// Whether a line looks like a command: one word after a slash. A path such as `/tmp/old` is a message.
fn is_command(line: &str) -> bool {
    line.strip_prefix('/').is_some_and(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphabetic()))
}

/// Prints the tools of the conversation.
async fn show_tools(session: &Session, thread: &str) {
    let shown = threads::fetch_tool_states(session, thread).await;
    if let Err(failure) = shown.and_then(|states| threads::print_tool_states(session, &states)) {
        failure.print(&session.printer);
    }
}

/// Prints how a turn ended. Returns only failures that would fail every further turn too.
fn report_turn(session: &Session, end: Result<TurnEnd, Failure>) -> Result<(), Failure> {
    match end {
        Ok(TurnEnd::Completed) => {}
        Ok(TurnEnd::Cancelled | TurnEnd::Interrupted) => {
            session.printer.note("stopped; the conversation continues");
        }
        Err(failure) if matches!(failure.exit, Exit::Auth | Exit::Usage) || failure.code == "unreachable" => {
            return Err(failure);
        }
        Err(failure) => failure.print(&session.printer),
    }
    Ok(())
}

/// Announces that a conversation is continued, and follows its last run to the end if it is still open.
async fn resume_thread(
    session: &Session,
    thread: &str,
    screen: &mut Screen,
    keyboard: &mut Keyboard,
) -> Result<(), Failure> {
    let runs = match session.send_checked(Request::get(["threads", thread, "runs"]).query("limit", Some(1))).await {
        Ok(response) => response.items()?,
        // The first message will create the thread.
        Err(failure) if failure.code == "thread_not_found" => return Ok(()),
        Err(failure) => return Err(failure),
    };
    let Some(last) = runs.first() else { return Ok(()) };
    let agent = pointer_text(last, "/agent");
    session.printer.note(&format!("continuing thread {thread} (agent {agent})"));
    if has_ended(last) {
        return Ok(());
    }
    let id = pointer_text(last, "/id");
    session.printer.note(&format!("its last run is still open: {id}"));
    let events = Request::get(["runs", &id, "events"]);
    let calls = last["calls"].as_array().into_iter().flatten();
    let approvals = calls.filter_map(|call| call["approvalId"].as_str().map(String::from)).collect();
    keyboard.set_pending_approvals(approvals);
    match run_turn(session, events, Some(id), screen, keyboard).await {
        // The run stays open until the approval is answered, and blocks new messages until then.
        Err(failure) if failure.code == "approval_required" => Err(failure),
        end => report_turn(session, end),
    }
}

/// Whether a run has ended.
pub(super) fn has_ended(run: &Value) -> bool {
    matches!(run["status"].as_str(), Some("completed" | "failed" | "cancelled"))
}

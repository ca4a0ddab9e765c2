//! `chat`: a conversation with an agent.
//!
//! In: what a person types, or one prompt. Out: what the agent says on stdout, and on stderr what it does meanwhile. `turn` is one
//! message to its end, `screen` how its events look. A conversation is a thread: it can be gone on with later, from anywhere.

mod screen;
mod turn;

use std::io::{self, IsTerminal, Read as _};

use serde_json::{Value, json};

use super::paging::pointer_text;
use crate::{client::Request, exit::Exit, failure::Failure, session::Session};
use screen::Screen;
use turn::{Keyboard, TurnEnd, run_turn};

/// Talk to an agent.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolhub chat                                    a conversation; Ctrl-D ends it, Ctrl-C stops what runs
  toolhub chat \"weather in Oslo, then a report\"
  toolhub chat -p \"what is 2+3*4?\"                only the answer, for scripts
  toolhub chat --thread t1                        go on with a conversation")]
pub(crate) struct Chat {
    /// What to say first; read from stdin where that is no terminal
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// Print only the answer, and end
    #[arg(short, long)]
    print: bool,
    /// The agent to talk to [default: the one of the thread, or `default`]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Say yes by yourself where a tool that only reads must be asked for
    #[arg(long)]
    yes_readonly: bool,
}

/// Words that end a conversation.
const EXIT_COMMANDS: [&str; 4] = ["/quit", "/exit", "/q", "/bye"];

pub(crate) async fn run(session: &Session, chat: Chat) -> Result<Exit, Failure> {
    let from_terminal = io::stdin().is_terminal();
    let first = match chat.prompt {
        Some(prompt) => Some(prompt),
        None if from_terminal => None,
        None => {
            let mut all = String::new();
            let cannot = |error| Failure::usage(format!("stdin cannot be read: {error}"));
            io::stdin().read_to_string(&mut all).map_err(cannot)?;
            Some(all)
        }
    };
    let empty = first.as_ref().map_or(chat.print, |prompt| prompt.trim().is_empty());
    if empty {
        return Err(Failure::usage("there is nothing to say").help("toolhub chat -p \"what is 2+3*4?\""));
    }
    let once = chat.print || session.printer.json || !from_terminal || !io::stdout().is_terminal();
    let somebody = from_terminal && io::stderr().is_terminal() && !session.global.no_input;
    let mut keyboard = Keyboard::new(somebody, chat.yes_readonly);
    let mut screen = Screen::new(session.printer.clone(), chat.print);
    let thread = match &session.global.thread {
        Some(thread) => {
            // Whoever wants only the answer does not want an older one.
            screen.mute(chat.print);
            resume_thread(session, thread, &mut screen, &mut keyboard).await?;
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
    let come_back = |session: &Session| {
        if session.global.thread.is_none() {
            session
                .printer
                .note(&format!("toolhub chat --thread {thread}{} goes on with this", session.target_flags()));
        }
    };
    if let Some(prompt) = &first {
        let ended = run_turn(session, message(prompt.trim()), None, &mut screen, &mut keyboard).await;
        if once {
            return match ended? {
                TurnEnd::Completed => {
                    come_back(session);
                    Ok(Exit::Success)
                }
                TurnEnd::Cancelled => Err(Failure::new("cancelled", "the run was cancelled")),
                TurnEnd::Interrupted => Ok(Exit::Interrupted),
            };
        }
        report_turn(session, ended)?;
    }
    if once {
        return Err(Failure::usage("there is nothing to say").help("toolhub chat \"what is 2+3*4?\""));
    }
    session.printer.note("Ctrl-D ends the conversation, Ctrl-C stops what runs.");
    while let Some(line) = keyboard.read_line("you> ").await {
        match line.trim() {
            "" => {}
            word if EXIT_COMMANDS.contains(&word) => break,
            said => report_turn(session, run_turn(session, message(said), None, &mut screen, &mut keyboard).await)?,
        }
    }
    come_back(session);
    Ok(Exit::Success)
}

/// Says how a turn ended, in a conversation that goes on; only what would end every turn ends it.
fn report_turn(session: &Session, ended: Result<TurnEnd, Failure>) -> Result<(), Failure> {
    match ended {
        Ok(TurnEnd::Completed) => {}
        Ok(TurnEnd::Cancelled | TurnEnd::Interrupted) => {
            session.printer.note("it was stopped; the conversation goes on");
        }
        Err(failure) if matches!(failure.exit, Exit::Auth | Exit::Usage) || failure.code == "unreachable" => {
            return Err(failure);
        }
        Err(failure) => failure.print(&session.printer),
    }
    Ok(())
}

/// Says that a conversation is gone on with, and sees a run to its end that is still open in it.
async fn resume_thread(
    session: &Session,
    thread: &str,
    screen: &mut Screen,
    keyboard: &mut Keyboard,
) -> Result<(), Failure> {
    let runs = match session.send_checked(Request::get(["threads", thread, "runs"]).query("limit", Some(1))).await {
        Ok(answer) => answer.items()?,
        // It is made by the first message.
        Err(failure) if failure.code == "thread_not_found" => return Ok(()),
        Err(failure) => return Err(failure),
    };
    let Some(last) = runs.first() else { return Ok(()) };
    let agent = pointer_text(last, "/agent");
    session.printer.note(&format!("going on with the conversation {thread} (agent {agent})"));
    if has_ended(last) {
        return Ok(());
    }
    let id = pointer_text(last, "/id");
    session.printer.note(&format!("its last run is still open: {id}"));
    let events = Request::get(["runs", &id, "events"]);
    let asked = last["calls"].as_array().into_iter().flatten();
    let asked = asked.filter_map(|call| call["approvalId"].as_str().map(String::from)).collect();
    keyboard.set_pending_approvals(asked);
    match run_turn(session, events, Some(id), screen, keyboard).await {
        // It stays open until somebody answers; nothing can be said before that.
        Err(failure) if failure.code == "approval_required" => Err(failure),
        ended => report_turn(session, ended),
    }
}

/// Whether a run has come to its end.
pub(super) fn has_ended(run: &Value) -> bool {
    matches!(run["status"].as_str(), Some("completed" | "failed" | "cancelled"))
}

//! How the tour looks: headings, what was asked, what came out.

use std::io::Write;

use anstream::{print, println};
use anstyle::{AnsiColor, Style};
use toolhub::{Outcome, Status, prelude::Value};

const HEADING: Style = AnsiColor::Cyan.on_default().bold();
const BOLD: Style = Style::new().bold();
const SUCCESS_STYLE: Style = AnsiColor::Green.on_default();
const WARNING_STYLE: Style = AnsiColor::Yellow.on_default();
const DIMMED: Style = Style::new().dimmed();

/// Begins a stop of the tour.
pub(super) fn heading(number: usize, title: &str) {
    println!("\n{HEADING}{number}. {title}{HEADING:#}");
}

/// A sentence for the person who watches.
pub(super) fn say(text: &str) {
    println!("   {text}");
}

/// A detail.
pub(super) fn detail(text: &str) {
    println!("   {DIMMED}{text}{DIMMED:#}");
}

/// A question to a person, and the place for the answer.
pub(super) fn prompt(text: &str) {
    print!("   {BOLD}{text}{BOLD:#} ");
    // A terminal shows a line that has not ended only when it is told to.
    let _ = anstream::stdout().flush();
}

/// What the script answers where a person would type.
pub(super) fn echo(text: &str) {
    println!("{text}");
}

/// An answer that could not be taken.
pub(super) fn error(text: &str) {
    for line in text.lines() {
        println!("   {WARNING_STYLE}{line}{WARNING_STYLE:#}");
    }
}

/// The person does not want to see the rest.
pub(super) fn interrupted() {
    println!("\n\nThe tour was interrupted and ends here.");
}

/// What was asked.
pub(super) fn call(tool: &str, arguments: &Value, around: &str) {
    println!("   {BOLD}{tool}{BOLD:#} {arguments} {DIMMED}{around}{DIMMED:#}");
}

/// What came out: the text a model would read, and what happened to the world.
pub(super) fn outcome(outcome: &Outcome) {
    let text = outcome.model_text();
    let style = if outcome.status == Status::Success { SUCCESS_STYLE } else { WARNING_STYLE };
    let word = match (&outcome.error, outcome.replayed) {
        (Some(error), _) => error.kind.name(),
        (None, true) => "success (replayed)",
        (None, false) => "success",
    };
    for (at, line) in text.lines().enumerate() {
        let mark = if at == 0 { "→" } else { " " };
        println!("     {style}{mark} {}{style:#}", truncate(line));
    }
    let effect = effect_name(outcome.effect);
    let wait = outcome.error.as_ref().and_then(|error| error.retry_after);
    let again = wait.map_or(String::new(), |wait| format!(" · ask again in {wait:.0?}"));
    let tried = if outcome.attempts > 1 { format!(" · {} attempts", outcome.attempts) } else { String::new() };
    println!(
        "     {DIMMED}{word} · effect {effect} · {:.1} ms{tried}{again}{DIMMED:#}",
        outcome.duration.as_secs_f64() * 1000.0
    );
}

fn truncate(line: &str) -> String {
    let mut text: String = line.chars().take(110).collect();
    if text.len() < line.len() {
        text.push('…');
    }
    text
}

fn effect_name(effect: toolhub::Effect) -> &'static str {
    match effect {
        toolhub::Effect::None => "none",
        toolhub::Effect::Done => "done",
        toolhub::Effect::Unknown => "unknown",
    }
}

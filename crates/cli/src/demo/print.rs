//! Output of the tour: headings, calls and outcomes.

use std::io::Write;

use anstream::{print, println};
use anstyle::{AnsiColor, Style};
use toolhub::{Outcome, Status, prelude::Value};

const HEADING: Style = AnsiColor::Cyan.on_default().bold();
const BOLD: Style = Style::new().bold();
const SUCCESS_STYLE: Style = AnsiColor::Green.on_default();
const WARNING_STYLE: Style = AnsiColor::Yellow.on_default();
const DIMMED: Style = Style::new().dimmed();

/// Prints the heading of a section.
pub(super) fn heading(number: usize, title: &str) {
    println!("\n{HEADING}{number}. {title}{HEADING:#}");
}

/// Prints a sentence.
pub(super) fn print_line(text: &str) {
    println!("   {text}");
}

/// Prints a detail.
pub(super) fn detail(text: &str) {
    println!("   {DIMMED}{text}{DIMMED:#}");
}

/// Prints a prompt, without a line end.
pub(super) fn prompt(text: &str) {
    print!("   {BOLD}{text}{BOLD:#} ");
    // Stdout is line-buffered, so an incomplete line must be flushed.
    let _ = anstream::stdout().flush();
}

/// Prints the script's answer where a user would type.
pub(super) fn echo(text: &str) {
    println!("{text}");
}

/// Prints why an answer was rejected.
pub(super) fn error(text: &str) {
    for line in text.lines() {
        println!("   {WARNING_STYLE}{line}{WARNING_STYLE:#}");
    }
}

/// Prints that the tour was interrupted.
pub(super) fn interrupted() {
    println!("\n\nThe tour was interrupted and ends here.");
}

/// Prints a call.
pub(super) fn call(tool: &str, arguments: &Value, note: &str) {
    println!("   {BOLD}{tool}{BOLD:#} {arguments} {DIMMED}{note}{DIMMED:#}");
}

/// Prints an outcome: the text for the model, and the effect.
pub(super) fn outcome(outcome: &Outcome) {
    let text = outcome.model_text();
    let style = if outcome.status == Status::Success { SUCCESS_STYLE } else { WARNING_STYLE };
    let result = match (&outcome.error, outcome.replayed) {
        (Some(error), _) => error.kind.name(),
        (None, true) => "success (replayed)",
        (None, false) => "success",
    };
    for (at, line) in text.lines().enumerate() {
        let arrow = if at == 0 { "→" } else { " " };
        println!("     {style}{arrow} {}{style:#}", truncate(line));
    }
    let effect = effect_name(outcome.effect);
    let wait = outcome.error.as_ref().and_then(|error| error.retry_after);
    let retry = wait.map_or(String::new(), |wait| format!(" · retry in {wait:.0?}"));
    let attempts = if outcome.attempts > 1 { format!(" · {} attempts", outcome.attempts) } else { String::new() };
    println!(
        "     {DIMMED}{result} · effect {effect} · {:.1} ms{attempts}{retry}{DIMMED:#}",
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

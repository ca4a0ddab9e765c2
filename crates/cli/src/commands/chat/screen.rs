//! How the events of a run look: what the agent says on stdout as it comes, what it does on stderr, dimmed.
//!
//! In: events. Out: text; or with `--json` the events themselves, one in a line. Where only the answer is wanted, it is printed when it
//! is whole.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
};

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use super::super::paging::pointer_text;
use crate::{
    client::Event,
    output::{Printer, format_millis, strip_control_chars, truncate_value},
};

const DIMMED: Style = Style::new().dimmed();
const ERROR_STYLE: Style = AnsiColor::Red.on_default();
/// So much of a call's arguments is shown.
const MAX_ARGUMENT_WIDTH: usize = 100;

/// The person's screen.
pub(super) struct Screen {
    printer: Printer,
    /// Whether only the answer is wanted.
    only_answer: bool,
    /// Whether nothing is wanted for the moment.
    muted: bool,
    /// What was heard of the message that is being said.
    partial_text: String,
    /// The last message that asked for no calls.
    answer: String,
    /// Whether the last thing on the screen was no whole line.
    mid_line: bool,
    /// Calls that were shown, so that none is shown twice.
    shown_calls: BTreeMap<String, String>,
}

impl Screen {
    pub(super) fn new(show: Printer, only_answer: bool) -> Self {
        let (heard, answer, calls) = (String::new(), String::new(), BTreeMap::new());
        Self {
            printer: show,
            only_answer,
            muted: false,
            partial_text: heard,
            answer,
            mid_line: false,
            shown_calls: calls,
        }
    }

    /// Nothing is shown from now on; or again.
    pub(super) fn mute(&mut self, muted: bool) {
        self.muted = muted;
    }

    /// A turn begins.
    pub(super) fn start_turn(&mut self) {
        self.partial_text.clear();
        self.answer.clear();
        self.shown_calls.clear();
    }

    /// Whether something can be shown on the line without spoiling what is on it.
    pub(super) fn at_line_start(&self) -> bool {
        !self.mid_line
    }

    /// Shows one event.
    pub(super) fn print_event(&mut self, event: &Event) {
        if self.muted {
            return;
        }
        if self.printer.json {
            return self.printer.print_untrusted(&event.text);
        }
        let data = &event.data;
        match event.name.as_str() {
            "message.delta" if data["again"] == true => {
                self.partial_text.clear();
                self.print_status_line(DIMMED, "the model begins anew");
            }
            "message.delta" => self.print_delta(&pointer_text(data, "/text")),
            "message.completed" => self.finish_message(data),
            "tool.execution.started" => self.print_call_start(data, &Value::Null),
            "tool.execution.completed" => {
                let took = data["durationMs"].as_f64().map(format_millis).unwrap_or_default();
                let sign = if self.printer.ascii { "ok" } else { "✓" };
                self.print_status_line(DIMMED, &format!("  {sign} {} {took}", pointer_text(data, "/toolName")));
            }
            "tool.execution.failed" => {
                let sign = if self.printer.ascii { "x" } else { "✖" };
                let (tool, why) = (pointer_text(data, "/toolName"), pointer_text(data, "/message"));
                let why = if why.is_empty() { pointer_text(data, "/error") } else { why };
                self.print_status_line(
                    ERROR_STYLE,
                    &format!(
                        "  {sign} {tool}: {}",
                        truncate_value(&why.into(), MAX_ARGUMENT_WIDTH * 2, self.printer.ascii)
                    ),
                );
            }
            "run.completed" => match data["stop"].as_str() {
                Some("length") => {
                    self.print_status_line(ERROR_STYLE, "the answer is cut off: the model may not say more at once");
                }
                Some("refusal") => {
                    self.print_status_line(
                        DIMMED,
                        "the model does not want to answer this, or its provider does not let it",
                    );
                }
                _ => {}
            },
            "call.progress" => {
                let done = data["fraction"].as_f64().map(|part| format!(" {:.0}%", part * 100.0)).unwrap_or_default();
                let words = pointer_text(data, "/message");
                self.print_status_line(DIMMED, &format!("    {}: {words}{done}", pointer_text(data, "/toolName")));
            }
            _ => {}
        }
    }

    /// The turn is over, or somebody is to be asked.
    pub(super) fn flush(&mut self) {
        if self.only_answer && !self.answer.is_empty() {
            self.printer.print_untrusted(&std::mem::take(&mut self.answer));
        }
        self.end_line();
    }

    /// The next piece of what the agent says.
    fn print_delta(&mut self, text: &str) {
        self.partial_text += text;
        if self.only_answer || text.is_empty() {
            return;
        }
        let shown = if self.printer.terminal { strip_control_chars(text) } else { text.to_owned() };
        let mut out = io::stdout().lock();
        // Nobody reads any more: whoever closed the pipe knows.
        let _ = out.write_all(shown.as_bytes()).and_then(|()| out.flush());
        self.mid_line = !self.partial_text.ends_with('\n');
    }

    /// A message is whole. What was not heard of it piece by piece is shown now.
    fn finish_message(&mut self, data: &Value) {
        let content = pointer_text(data, "/content");
        if self.partial_text.is_empty() {
            self.print_delta(&content);
        }
        self.partial_text.clear();
        self.end_line();
        self.answer = content;
        for call in data["calls"].as_array().into_iter().flatten() {
            self.print_call_start(call, &call["arguments"]);
        }
    }

    fn print_call_start(&mut self, call: &Value, arguments: &Value) {
        let id =
            [pointer_text(call, "/callId"), pointer_text(call, "/id")].into_iter().find(|id| id.starts_with("call_"));
        let tool =
            [pointer_text(call, "/toolName"), pointer_text(call, "/tool")].into_iter().find(|name| !name.is_empty());
        let (Some(id), Some(tool)) = (id, tool) else { return };
        if self.shown_calls.contains_key(&id) {
            return;
        }
        let sign = if self.printer.ascii { ">" } else { "▸" };
        let arguments = if arguments.is_null() {
            String::new()
        } else {
            truncate_value(arguments, MAX_ARGUMENT_WIDTH, self.printer.ascii)
        };
        self.print_status_line(DIMMED, &format!("  {sign} {tool} {arguments}"));
        self.shown_calls.insert(id, tool);
    }

    fn end_line(&mut self) {
        if self.mid_line {
            let _ = writeln!(io::stdout());
            self.mid_line = false;
        }
    }

    /// Says what happens beside what is said.
    fn print_status_line(&mut self, style: Style, line: &str) {
        self.end_line();
        if !self.printer.quiet {
            // One line, whatever a model calls its tools: it must not look like another one.
            let line = strip_control_chars(line).replace('\n', " ");
            let _ = writeln!(anstream::stderr(), "{style}{}{style:#}", line.trim_end());
        }
    }
}

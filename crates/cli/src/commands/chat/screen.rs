//! Prints the events of a run: the agent's text on stdout as it streams, its activity dimmed on stderr.
//!
//! In: events. Out: text; with `--json` the events themselves, one per line. With `--print`, only the complete answer.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
};

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use super::super::paging::pointer_text;
use crate::{
    client::Event,
    output::{Printer, format_millis, strip_hidden, truncate_value},
};

const DIMMED: Style = Style::new().dimmed();
const ERROR_STYLE: Style = AnsiColor::Red.on_default();
/// Maximum width of a call's arguments.
const MAX_ARGUMENT_WIDTH: usize = 100;

/// The output of a chat.
pub(super) struct Screen {
    printer: Printer,
    /// Print only the final answer.
    only_answer: bool,
    /// Print nothing.
    muted: bool,
    /// Text received so far of the current message.
    partial_text: String,
    /// The last message without tool calls.
    answer: String,
    /// Whether the cursor is not at the start of a line.
    mid_line: bool,
    /// Calls that were printed already, by id.
    shown_calls: BTreeMap<String, String>,
}

impl Screen {
    pub(super) fn new(printer: Printer, only_answer: bool) -> Self {
        Self {
            printer,
            only_answer,
            muted: false,
            partial_text: String::new(),
            answer: String::new(),
            mid_line: false,
            shown_calls: BTreeMap::new(),
        }
    }

    /// Mutes or unmutes the output.
    pub(super) fn mute(&mut self, muted: bool) {
        self.muted = muted;
    }

    /// Resets the per-turn state.
    pub(super) fn start_turn(&mut self) {
        self.partial_text.clear();
        self.answer.clear();
        self.shown_calls.clear();
    }

    /// Whether the current line is empty, so that a spinner may use it.
    pub(super) fn at_line_start(&self) -> bool {
        !self.mid_line
    }

    /// Prints one event.
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
                self.print_status_line(DIMMED, "the model restarts its answer");
            }
            "message.delta" => self.print_delta(&pointer_text(data, "/text")),
            "message.completed" => self.finish_message(data),
            "tool.execution.started" => self.print_call_start(data, &Value::Null),
            "tool.execution.completed" => {
                let duration = data["durationMs"].as_f64().map(format_millis).unwrap_or_default();
                let sign = if self.printer.ascii { "ok" } else { "✓" };
                self.print_status_line(DIMMED, &format!("  {sign} {} {duration}", pointer_text(data, "/toolName")));
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
                    self.print_status_line(
                        ERROR_STYLE,
                        "the answer is truncated: the model reached its output token limit",
                    );
                }
                Some("refusal") => {
                    self.print_status_line(DIMMED, "the model or its provider refused to answer");
                }
                _ => {}
            },
            "call.progress" => {
                let percent =
                    data["fraction"].as_f64().map(|fraction| format!(" {:.0}%", fraction * 100.0)).unwrap_or_default();
                let message = pointer_text(data, "/message");
                self.print_status_line(DIMMED, &format!("    {}: {message}{percent}", pointer_text(data, "/toolName")));
            }
            _ => {}
        }
    }

    /// Ends the output of a turn, or pauses it for a prompt.
    pub(super) fn flush(&mut self) {
        if self.only_answer && !self.answer.is_empty() {
            self.printer.print_untrusted(&std::mem::take(&mut self.answer));
        }
        self.end_line();
    }

    /// Prints the next part of the agent's text.
    fn print_delta(&mut self, text: &str) {
        self.partial_text += text;
        if self.only_answer || text.is_empty() {
            return;
        }
        let shown = if self.printer.terminal { strip_hidden(text) } else { text.to_owned() };
        let mut out = io::stdout().lock();
        // Printing fails only when the reader has closed the pipe.
        let _ = out.write_all(shown.as_bytes()).and_then(|()| out.flush());
        self.mid_line = !self.partial_text.ends_with('\n');
    }

    /// Completes a message; prints it now if it was not streamed.
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

    /// Prints a line of activity on stderr.
    fn print_status_line(&mut self, style: Style, line: &str) {
        self.end_line();
        if !self.printer.quiet {
            // Force one line, so that a tool name with line breaks cannot imitate other output.
            let line = strip_hidden(line).replace('\n', " ");
            let _ = writeln!(anstream::stderr(), "{style}{}{style:#}", line.trim_end());
        }
    }
}

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

use super::super::list::text;
use crate::{
    client::Event,
    output::{Show, lasting, plain, short},
};

const QUIET: Style = Style::new().dimmed();
const BAD: Style = AnsiColor::Red.on_default();
/// So much of a call's arguments is shown.
const SHOWN: usize = 100;

/// The person's screen.
pub(super) struct Screen {
    show: Show,
    /// Whether only the answer is wanted.
    only_answer: bool,
    /// Whether nothing is wanted for the moment.
    muted: bool,
    /// What was heard of the message that is being said.
    heard: String,
    /// The last message that asked for no calls.
    answer: String,
    /// Whether the last thing on the screen was no whole line.
    open: bool,
    /// Calls that were shown, so that none is shown twice.
    calls: BTreeMap<String, String>,
}

impl Screen {
    pub(super) fn new(show: Show, only_answer: bool) -> Self {
        let (heard, answer, calls) = (String::new(), String::new(), BTreeMap::new());
        Self { show, only_answer, muted: false, heard, answer, open: false, calls }
    }

    /// Nothing is shown from now on; or again.
    pub(super) fn mute(&mut self, muted: bool) {
        self.muted = muted;
    }

    /// A turn begins.
    pub(super) fn begin(&mut self) {
        self.heard.clear();
        self.answer.clear();
        self.calls.clear();
    }

    /// Whether something can be shown on the line without spoiling what is on it.
    pub(super) fn at_line_start(&self) -> bool {
        !self.open
    }

    /// Shows one event.
    pub(super) fn show(&mut self, event: &Event) {
        if self.muted {
            return;
        }
        if self.show.json {
            return self.show.foreign(&event.text);
        }
        let data = &event.data;
        match event.name.as_str() {
            "message.delta" if data["again"] == true => {
                self.heard.clear();
                self.aside(QUIET, "the model begins anew");
            }
            "message.delta" => self.piece(&text(data, "/text")),
            "message.completed" => self.said(data),
            "tool.execution.started" => self.begins(data, &Value::Null),
            "tool.execution.completed" => {
                let took = data["durationMs"].as_f64().map(lasting).unwrap_or_default();
                let sign = if self.show.ascii { "ok" } else { "✓" };
                self.aside(QUIET, &format!("  {sign} {} {took}", text(data, "/toolName")));
            }
            "tool.execution.failed" => {
                let sign = if self.show.ascii { "x" } else { "✖" };
                let (tool, why) = (text(data, "/toolName"), text(data, "/message"));
                let why = if why.is_empty() { text(data, "/error") } else { why };
                self.aside(BAD, &format!("  {sign} {tool}: {}", short(&why.into(), SHOWN * 2, self.show.ascii)));
            }
            "run.completed" => match data["stop"].as_str() {
                Some("length") => self.aside(BAD, "the answer is cut off: the model may not say more at once"),
                Some("refusal") => {
                    self.aside(QUIET, "the model does not want to answer this, or its provider does not let it");
                }
                _ => {}
            },
            "call.progress" => {
                let done = data["fraction"].as_f64().map(|part| format!(" {:.0}%", part * 100.0)).unwrap_or_default();
                let words = text(data, "/message");
                self.aside(QUIET, &format!("    {}: {words}{done}", text(data, "/toolName")));
            }
            _ => {}
        }
    }

    /// The turn is over, or somebody is to be asked.
    pub(super) fn end(&mut self) {
        if self.only_answer && !self.answer.is_empty() {
            self.show.foreign(&std::mem::take(&mut self.answer));
        }
        self.line_ends();
    }

    /// The next piece of what the agent says.
    fn piece(&mut self, text: &str) {
        self.heard += text;
        if self.only_answer || text.is_empty() {
            return;
        }
        let shown = if self.show.terminal { plain(text) } else { text.to_owned() };
        let mut out = io::stdout().lock();
        // Nobody reads any more: whoever closed the pipe knows.
        let _ = out.write_all(shown.as_bytes()).and_then(|()| out.flush());
        self.open = !self.heard.ends_with('\n');
    }

    /// A message is whole. What was not heard of it piece by piece is shown now.
    fn said(&mut self, data: &Value) {
        let content = text(data, "/content");
        if self.heard.is_empty() {
            self.piece(&content);
        }
        self.heard.clear();
        self.line_ends();
        self.answer = content;
        for call in data["calls"].as_array().into_iter().flatten() {
            self.begins(call, &call["arguments"]);
        }
    }

    fn begins(&mut self, call: &Value, arguments: &Value) {
        let id = [text(call, "/callId"), text(call, "/id")].into_iter().find(|id| id.starts_with("call_"));
        let tool = [text(call, "/toolName"), text(call, "/tool")].into_iter().find(|name| !name.is_empty());
        let (Some(id), Some(tool)) = (id, tool) else { return };
        if self.calls.contains_key(&id) {
            return;
        }
        let sign = if self.show.ascii { ">" } else { "▸" };
        let arguments = if arguments.is_null() { String::new() } else { short(arguments, SHOWN, self.show.ascii) };
        self.aside(QUIET, &format!("  {sign} {tool} {arguments}"));
        self.calls.insert(id, tool);
    }

    fn line_ends(&mut self) {
        if self.open {
            let _ = writeln!(io::stdout());
            self.open = false;
        }
    }

    /// Says what happens beside what is said.
    fn aside(&mut self, style: Style, line: &str) {
        self.line_ends();
        if !self.show.quiet {
            // One line, whatever a model calls its tools: it must not look like another one.
            let line = plain(line).replace('\n', " ");
            let _ = writeln!(anstream::stderr(), "{style}{}{style:#}", line.trim_end());
        }
    }
}

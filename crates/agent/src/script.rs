//! A scripted model: deterministic replies from a script, for demos and tests.
//!
//! In: a script, and a conversation with the offered tools. Out: text and calls. No clock, no randomness, no memory:
//! the same conversation gets the same reply. `parser` parses a script, `matcher` finds the turn that replies,
//! `template` fills in its text; `stub` serves it over HTTP.

mod matcher;
mod parser;
mod problem;
mod template;
mod toml_reader;

use std::{collections::BTreeMap, time::Duration};

use regex::Regex;
use serde_json::Value;

use crate::message::Message;
pub use problem::{ScriptError, ScriptProblem};
use template::Template;

/// The script of the demo.
const DEMO_SCRIPT: &str = include_str!("script/demo.toml");

/// The script of a scripted model. See `docs/stub-llm.md` for the format.
///
/// ```
/// use toolhub_agent::Script;
///
/// let script = Script::parse(r#"
///     [[turn]]
///     when = { user = "(?i)weather in (?<city>\\w+)", tool_available = "weather" }
///     call = [{ tool = "weather", args = { city = "$city" } }]
/// "#)?;
/// # Ok::<(), toolhub_agent::ScriptError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Script {
    /// In their order; the last one is the default, for conversations that no other turn matches.
    turns: Vec<Turn>,
}

/// One reply and its conditions.
#[derive(Debug, Clone, Default)]
struct Turn {
    /// Its line in the script.
    line: usize,
    when: TurnConditions,
    say: Option<Template>,
    calls: Vec<ScriptedCall>,
    fault: Option<Fault>,
    /// How often it may call after one user message.
    repeat: u32,
}

/// The conditions of a turn; all of them must hold.
#[derive(Debug, Clone, Default)]
struct TurnConditions {
    user: Option<Regex>,
    system: Option<Regex>,
    result: Option<Regex>,
    tool_available: Vec<String>,
    tool_missing: Vec<String>,
    tool_result: Vec<String>,
}

#[derive(Debug, Clone)]
struct ScriptedCall {
    tool: String,
    arguments: Argument,
}

/// An argument with placeholders.
#[derive(Debug, Clone)]
enum Argument {
    Text(Template),
    Literal(Value),
    List(Vec<Argument>),
    Table(BTreeMap<String, Argument>),
}

/// A fault to inject into a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// An error with this status instead of the reply.
    pub status: Option<u16>,
    /// The `Retry-After` of the error.
    pub retry_after: Option<Duration>,
    /// Delay before the response.
    pub slow: Option<Duration>,
    /// The response is truncated.
    pub cut: bool,
    /// The arguments of the calls are not valid JSON.
    pub malformed: bool,
    /// How often the fault occurs; default: always.
    pub times: Option<u32>,
}

/// A request to a scripted model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// The system prompt.
    pub system: String,
    /// The messages so far.
    pub messages: Vec<Message>,
    /// The names of the offered tools.
    pub tools: Vec<String>,
    /// Whether it may request calls.
    pub may_call: bool,
}

/// The reply of a scripted model.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ScriptedReply<'a> {
    /// The index of the turn; the one after the last is the default.
    pub turn: usize,
    /// The line of the turn in the script; 0 if the script has no default.
    pub line: usize,
    /// Its text; may be empty.
    pub text: String,
    /// The calls it requests: an id part that names the turn, a tool and arguments.
    pub calls: Vec<(String, String, Value)>,
    /// The fault to inject.
    pub fault: Option<&'a Fault>,
}

impl Script {
    /// Parses a script.
    ///
    /// # Errors
    /// With every problem and its line.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        parser::parse(text)
    }

    /// The script of the demo, for the demo's tools.
    pub fn demo() -> Self {
        Self::parse(DEMO_SCRIPT).expect("a test parses the demo script")
    }

    /// The number of turns, including the default.
    pub fn turn_count(&self) -> usize {
        self.turns.len()
    }

    /// The reply to this conversation: from the first turn that matches, or the default.
    pub fn answer(&self, conversation: &Conversation) -> ScriptedReply<'_> {
        matcher::answer(self, conversation)
    }
}

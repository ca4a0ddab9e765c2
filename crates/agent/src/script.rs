//! A scripted model: what it says to a conversation, decided by a script and by nothing else.
//!
//! In: a script, and a conversation with the tools that are offered. Out: a text and calls. No clock, no chance, no memory: the same
//! conversation gets the same answer. `read` makes a script of its text, `fit` finds the turn that answers, `text` fills in what it says;
//! `stub` puts it behind HTTP.

mod matcher;
mod parser;
mod problem;
mod tables;
mod template;

use std::{collections::BTreeMap, time::Duration};

use regex::Regex;
use serde_json::Value;

use crate::message::Message;
pub use problem::{ScriptError, ScriptProblem};
use template::Template;

/// What the demo's model says.
const DEMO_SCRIPT: &str = include_str!("script/demo.toml");

/// What a scripted model says to what. See `docs/stub-llm.md` for how scripts are written.
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
    /// In their order; the last one is what is said where none fits.
    turns: Vec<Turn>,
}

/// One answer, and when it is given.
#[derive(Debug, Clone, Default)]
struct Turn {
    /// Where it stands in the script.
    line: usize,
    when: TurnConditions,
    say: Option<Template>,
    calls: Vec<ScriptedCall>,
    fault: Option<Fault>,
    /// How often it may call after one message of the user.
    repeat: u32,
}

/// All that must hold.
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

/// An argument with places to fill in.
#[derive(Debug, Clone)]
enum Argument {
    Text(Template),
    Literal(Value),
    List(Vec<Argument>),
    Table(BTreeMap<String, Argument>),
}

/// What goes wrong with an answer, on purpose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// An error with this status instead of the answer.
    pub status: Option<u16>,
    /// How long the error asks to wait.
    pub retry_after: Option<Duration>,
    /// How long nothing comes.
    pub slow: Option<Duration>,
    /// The answer ends in the middle.
    pub cut: bool,
    /// The arguments of the calls are no JSON.
    pub malformed: bool,
    /// How often; always where nothing is said.
    pub times: Option<u32>,
}

/// What a scripted model is asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// Who it is told to be.
    pub system: String,
    /// What was said so far.
    pub messages: Vec<Message>,
    /// The names of the tools it is offered.
    pub tools: Vec<String>,
    /// Whether it may ask for calls.
    pub may_call: bool,
}

/// What a scripted model answers.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ScriptedReply<'a> {
    /// Which turn answers, from 0; the one after the last is the default.
    pub turn: usize,
    /// The line of the script it stands on; 0 where the script has no default.
    pub line: usize,
    /// What it says; may be empty.
    pub text: String,
    /// The calls it asks for: each with a part of an id that tells which turn made it, a tool and arguments.
    pub calls: Vec<(String, String, Value)>,
    /// What goes wrong with it.
    pub fault: Option<&'a Fault>,
}

impl Script {
    /// The script in this text.
    ///
    /// # Errors
    /// With every problem that can be found, and where it is.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        parser::parse(text)
    }

    /// The script of the demo, which knows the demo's tools.
    pub fn demo() -> Self {
        Self::parse(DEMO_SCRIPT).expect("a test reads the demo's script")
    }

    /// How many turns there are, the default included.
    pub fn turn_count(&self) -> usize {
        self.turns.len()
    }

    /// What is answered to this conversation: the first turn that fits, or the default.
    pub fn answer(&self, conversation: &Conversation) -> ScriptedReply<'_> {
        matcher::answer(self, conversation)
    }
}

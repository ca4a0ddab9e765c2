//! Finds the turn that answers a conversation.
//!
//! In: a script and a conversation. Out: what is said. The first turn answers of which all conditions hold, of which everything it names
//! is there, and which has not called often enough already.

use serde_json::{Map, Value};

use super::{Argument, Conversation, Script, ScriptedReply, Turn, TurnConditions, template::Variable};
use crate::message::{AskedCall, CallResult, Message};

/// The answer.
pub(super) fn answer<'a>(script: &'a Script, conversation: &Conversation) -> ScriptedReply<'a> {
    let view = ConversationView::of(script, conversation);
    let (default, turns) = script.turns.split_last().expect("a script has a default");
    let fitting = turns.iter().enumerate().find_map(|(at, turn)| view.try_turn(at, turn));
    fitting.unwrap_or_else(|| {
        // It answers whatever is missing: there is nobody after it.
        let say = |what: &Variable| Some(view.resolve(&default.when, what).unwrap_or_default());
        let text = default.say.as_ref().and_then(|text| text.fill(&say)).unwrap_or_default();
        let fault = default.fault.as_ref();
        ScriptedReply { turn: turns.len(), line: default.line, text, calls: Vec::new(), fault }
    })
}

/// The parts of a conversation that conditions are about.
struct ConversationView<'a> {
    script: &'a Script,
    conversation: &'a Conversation,
    /// What the user said last.
    user: &'a str,
    /// What came after that.
    messages_since: &'a [Message],
    /// The results that were just told.
    results: &'a [CallResult],
}

impl<'a> ConversationView<'a> {
    fn of(script: &'a Script, conversation: &'a Conversation) -> Self {
        let messages = &conversation.messages;
        let last = messages.iter().rposition(|message| matches!(message, Message::User { .. }));
        let user = last.and_then(|at| match &messages[at] {
            Message::User { content } => Some(content.as_str()),
            _ => None,
        });
        let results = match messages.last() {
            Some(Message::Tool { results }) => results.as_slice(),
            _ => &[],
        };
        let since = &messages[last.map_or(0, |at| at + 1)..];
        Self { script, conversation, user: user.unwrap_or_default(), messages_since: since, results }
    }

    /// What a turn says, if it fits.
    fn try_turn<'t>(&self, at: usize, turn: &'t Turn) -> Option<ScriptedReply<'t>> {
        let calls = !turn.calls.is_empty();
        if !self.conditions_met(&turn.when)
            || (calls && (!self.conversation.may_call || self.times_called(at) >= turn.repeat))
        {
            return None;
        }
        let known = |what: &Variable| self.resolve(&turn.when, what);
        let text = match &turn.say {
            Some(say) => say.fill(&known)?,
            None => String::new(),
        };
        let moment = self.conversation.messages.len();
        let calls = turn.calls.iter().enumerate().map(|(number, call)| {
            let arguments = fill_argument(&call.arguments, &known)?;
            Some((format!("t{at}_m{moment}_{number}"), call.tool.clone(), arguments))
        });
        Some(ScriptedReply {
            turn: at,
            line: turn.line,
            text,
            calls: calls.collect::<Option<_>>()?,
            fault: turn.fault.as_ref(),
        })
    }

    fn conditions_met(&self, when: &TurnConditions) -> bool {
        let offered = |name: &String| self.conversation.tools.contains(name);
        when.user.as_ref().is_none_or(|pattern| pattern.is_match(self.user))
            && when.system.as_ref().is_none_or(|pattern| pattern.is_match(&self.conversation.system))
            && when.tool_available.iter().all(offered)
            && !when.tool_missing.iter().any(offered)
            && (when.tool_result.is_empty() || self.newest_result(when).is_some())
            && when
                .result
                .as_ref()
                .is_none_or(|pattern| self.newest_result(when).is_some_and(|one| pattern.is_match(&one.text)))
    }

    /// The newest of the results just told, of the tools the condition is about.
    fn newest_result(&self, when: &TurnConditions) -> Option<&'a CallResult> {
        let meant = |one: &&CallResult| {
            let names = &when.tool_result;
            names.is_empty() || names.iter().any(|name| name == "*" || *name == one.tool)
        };
        self.results.iter().rev().find(meant)
    }

    /// How often a turn has called since the user spoke. The ids of its calls tell.
    fn times_called(&self, turn: usize) -> u32 {
        let own =
            |call: &AskedCall| call.id.split_once('_').is_some_and(|(_, id)| id.starts_with(&format!("t{turn}_")));
        let asked = |message: &&Message| matches!(message, Message::Assistant { calls, .. } if calls.iter().any(own));
        u32::try_from(self.messages_since.iter().filter(asked).count()).unwrap_or(u32::MAX)
    }

    /// What stands for what.
    fn resolve(&self, when: &TurnConditions, what: &Variable) -> Option<Value> {
        match what {
            Variable::Group(name) => self.captured_group(when, name).map(Value::from),
            Variable::User => Some(self.user.into()),
            Variable::Tools if self.conversation.tools.is_empty() => Some("no tools".into()),
            Variable::Tools => Some(self.conversation.tools.join(", ").into()),
            Variable::Unavailable(tool) => Some(self.unavailable_reason(tool).into()),
            Variable::Result(path) => {
                value_at_path(&self.newest_result(when).or_else(|| self.all_results().next())?.text, path)
            }
            Variable::ResultOf(tool, path) => {
                value_at_path(&self.all_results().find(|one| one.tool == *tool)?.text, path)
            }
        }
    }

    /// All results of the conversation, newest first.
    fn all_results(&self) -> impl Iterator<Item = &'a CallResult> {
        let messages = self.conversation.messages.iter().rev();
        messages.flat_map(|message| match message {
            Message::Tool { results } => results.as_slice(),
            _ => &[],
        })
    }

    /// What a group matched: in the turn's own pattern, else in the newest message of the user that any pattern with such a group fits.
    fn captured_group(&self, when: &TurnConditions, name: &str) -> Option<String> {
        let all = self.script.turns.iter().filter_map(|turn| turn.when.user.as_ref());
        let patterns = when.user.iter().chain(all);
        let patterns: Vec<_> =
            patterns.filter(|pattern| pattern.capture_names().flatten().any(|group| group == name)).collect();
        let said = self.conversation.messages.iter().rev().filter_map(|message| match message {
            Message::User { content } => Some(content.as_str()),
            _ => None,
        });
        said.into_iter().find_map(|text| {
            let found = |pattern: &&regex::Regex| Some(pattern.captures(text)?.name(name)?.as_str().trim().to_owned());
            patterns.iter().find_map(found)
        })
    }

    /// What the system prompt says about a tool: the rest of the line that begins with its name.
    fn unavailable_reason(&self, tool: &str) -> String {
        let said = self.conversation.system.lines().find_map(|line| {
            let line = line.trim_start_matches(['-', '*', ' ']);
            let rest = line.strip_prefix(tool).or_else(|| line.strip_prefix(&format!("`{tool}`")))?;
            rest.trim_start().strip_prefix(':').map(|rest| rest.trim().to_owned())
        });
        said.unwrap_or_else(|| "it is not offered now".into())
    }
}

/// A part of a result: what is no JSON has none.
fn value_at_path(text: &str, path: &[String]) -> Option<Value> {
    if path.is_empty() {
        return Some(text.into());
    }
    let mut value: Value = serde_json::from_str(text).ok()?;
    for step in path {
        value = match value {
            Value::Object(mut object) => object.remove(step)?,
            Value::Array(mut list) => {
                let at = step.parse::<usize>().ok().filter(|at| *at < list.len())?;
                list.swap_remove(at)
            }
            _ => return None,
        };
    }
    Some(value)
}

fn fill_argument(argument: &Argument, known: &dyn Fn(&Variable) -> Option<Value>) -> Option<Value> {
    match argument {
        Argument::Literal(value) => Some(value.clone()),
        Argument::Text(text) => text.value(known),
        Argument::List(list) => list.iter().map(|one| fill_argument(one, known)).collect(),
        Argument::Table(table) => {
            let members = table.iter().map(|(name, one)| Some((name.clone(), fill_argument(one, known)?)));
            members.collect::<Option<Map<String, Value>>>().map(Value::Object)
        }
    }
}

//! Finds the turn of a script that replies to a conversation.
//!
//! In: a script and a conversation. Out: the reply. It comes from the first turn whose conditions all hold, whose
//! placeholders can all be resolved, and which has not reached its maximum of calls.

use serde_json::{Map, Value};

use super::{Argument, Conversation, Script, ScriptedReply, Turn, TurnConditions, template::Variable};
use crate::message::{CallResult, Message, ToolCall};

pub(super) fn answer<'a>(script: &'a Script, conversation: &Conversation) -> ScriptedReply<'a> {
    let view = ConversationView::of(script, conversation);
    let (default, turns) = script.turns.split_last().expect("a script has a default");
    let matching = turns.iter().enumerate().find_map(|(index, turn)| view.try_turn(index, turn));
    matching.unwrap_or_else(|| {
        // The default always replies, so unresolved placeholders become empty.
        let resolve = |variable: &Variable| Some(view.resolve(&default.when, variable).unwrap_or_default());
        let text = default.say.as_ref().and_then(|text| text.fill(&resolve)).unwrap_or_default();
        let fault = default.fault.as_ref();
        ScriptedReply { turn: turns.len(), line: default.line, text, calls: Vec::new(), fault }
    })
}

/// The parts of a conversation that conditions refer to.
struct ConversationView<'a> {
    script: &'a Script,
    conversation: &'a Conversation,
    /// The last user message.
    user: &'a str,
    /// The messages after it.
    messages_since: &'a [Message],
    /// The results in the last message.
    results: &'a [CallResult],
}

impl<'a> ConversationView<'a> {
    fn of(script: &'a Script, conversation: &'a Conversation) -> Self {
        let messages = &conversation.messages;
        let last = messages.iter().rposition(|message| matches!(message, Message::User { .. }));
        let user = last.and_then(|index| match &messages[index] {
            Message::User { content } => Some(content.as_str()),
            _ => None,
        });
        let results = match messages.last() {
            Some(Message::Tool { results }) => results.as_slice(),
            _ => &[],
        };
        let messages_since = &messages[last.map_or(0, |index| index + 1)..];
        Self { script, conversation, user: user.unwrap_or_default(), messages_since, results }
    }

    /// The reply of a turn, if it matches.
    fn try_turn<'t>(&self, index: usize, turn: &'t Turn) -> Option<ScriptedReply<'t>> {
        let has_calls = !turn.calls.is_empty();
        if !self.conditions_met(&turn.when)
            || (has_calls && (!self.conversation.may_call || self.times_called(index) >= turn.repeat))
        {
            return None;
        }
        let resolve = |variable: &Variable| self.resolve(&turn.when, variable);
        let text = match &turn.say {
            Some(say) => say.fill(&resolve)?,
            None => String::new(),
        };
        let message_count = self.conversation.messages.len();
        let calls = turn.calls.iter().enumerate().map(|(number, call)| {
            let arguments = fill_argument(&call.arguments, &resolve)?;
            Some((format!("t{index}_m{message_count}_{number}"), call.tool.clone(), arguments))
        });
        Some(ScriptedReply {
            turn: index,
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
                .is_none_or(|pattern| self.newest_result(when).is_some_and(|result| pattern.is_match(&result.text)))
    }

    /// The newest result of the last message, of the tools in the condition.
    fn newest_result(&self, when: &TurnConditions) -> Option<&'a CallResult> {
        let matches = |result: &&CallResult| {
            let names = &when.tool_result;
            names.is_empty() || names.iter().any(|name| name == "*" || *name == result.tool)
        };
        self.results.iter().rev().find(matches)
    }

    /// How often a turn has called since the last user message, by the ids of its calls.
    fn times_called(&self, turn: usize) -> u32 {
        let is_own =
            |call: &ToolCall| call.id.split_once('_').is_some_and(|(_, id)| id.starts_with(&format!("t{turn}_")));
        let has_own =
            |message: &&Message| matches!(message, Message::Assistant { calls, .. } if calls.iter().any(is_own));
        u32::try_from(self.messages_since.iter().filter(has_own).count()).unwrap_or(u32::MAX)
    }

    /// The value of a variable.
    fn resolve(&self, when: &TurnConditions, variable: &Variable) -> Option<Value> {
        match variable {
            Variable::Group(name) => self.captured_group(when, name).map(Value::from),
            Variable::User => Some(self.user.into()),
            Variable::Tools if self.conversation.tools.is_empty() => Some("no tools".into()),
            Variable::Tools => Some(self.conversation.tools.join(", ").into()),
            Variable::Unavailable(tool) => Some(self.unavailable_reason(tool).into()),
            Variable::Result(path) => {
                value_at_path(&self.newest_result(when).or_else(|| self.all_results().next())?.text, path)
            }
            Variable::ResultOf(tool, path) => {
                value_at_path(&self.all_results().find(|result| result.tool == *tool)?.text, path)
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

    /// The text that a group captured: with the turn's own pattern, else in the newest user message that any pattern
    /// with such a group matches.
    fn captured_group(&self, when: &TurnConditions, name: &str) -> Option<String> {
        let all_patterns = self.script.turns.iter().filter_map(|turn| turn.when.user.as_ref());
        let patterns = when.user.iter().chain(all_patterns);
        let patterns: Vec<_> =
            patterns.filter(|pattern| pattern.capture_names().flatten().any(|group| group == name)).collect();
        let user_messages = self.conversation.messages.iter().rev().filter_map(|message| match message {
            Message::User { content } => Some(content.as_str()),
            _ => None,
        });
        user_messages.into_iter().find_map(|text| {
            let capture =
                |pattern: &&regex::Regex| Some(pattern.captures(text)?.name(name)?.as_str().trim().to_owned());
            patterns.iter().find_map(capture)
        })
    }

    /// The reason in the system prompt: the rest of the line that begins with the tool's name.
    fn unavailable_reason(&self, tool: &str) -> String {
        let reason = self.conversation.system.lines().find_map(|line| {
            let line = line.trim_start_matches(['-', '*', ' ']);
            let rest = line.strip_prefix(tool).or_else(|| line.strip_prefix(&format!("`{tool}`")))?;
            rest.trim_start().strip_prefix(':').map(|rest| rest.trim().to_owned())
        });
        reason.unwrap_or_else(|| "it is not offered now".into())
    }
}

/// The value at a path of a JSON result; without a path, the whole text.
fn value_at_path(text: &str, path: &[String]) -> Option<Value> {
    if path.is_empty() {
        return Some(text.into());
    }
    let mut value: Value = serde_json::from_str(text).ok()?;
    for segment in path {
        value = match value {
            Value::Object(mut object) => object.remove(segment)?,
            Value::Array(mut list) => {
                let index = segment.parse::<usize>().ok().filter(|index| *index < list.len())?;
                list.swap_remove(index)
            }
            _ => return None,
        };
    }
    Some(value)
}

fn fill_argument(argument: &Argument, resolve: &dyn Fn(&Variable) -> Option<Value>) -> Option<Value> {
    match argument {
        Argument::Literal(value) => Some(value.clone()),
        Argument::Text(text) => text.value(resolve),
        Argument::List(list) => list.iter().map(|item| fill_argument(item, resolve)).collect(),
        Argument::Table(table) => {
            let members = table.iter().map(|(name, value)| Some((name.clone(), fill_argument(value, resolve)?)));
            members.collect::<Option<Map<String, Value>>>().map(Value::Object)
        }
    }
}

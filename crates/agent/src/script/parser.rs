//! Parses a script.
//!
//! In: TOML. Out: the script, or all of its problems. `toml_reader` reads TOML values; this file knows the keys.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;
use toml::de::{DeTable, DeValue};
use toolhub_core::suggest::closest;

use super::{
    Argument, Fault, Script, ScriptError, ScriptedCall, Turn, TurnConditions,
    template::{RESERVED_NAMES, Template, Variable},
    toml_reader::{Node, Problems},
};

/// The reply of a script without a default, if no turn matches.
const DEFAULT_REPLY: &str = "I have no line for that in my script.";

/// Parses a script, and reports all problems together.
pub(super) fn parse(text: &str) -> Result<Script, ScriptError> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut problems = Problems { text, found: Vec::new() };
    for error in &errors {
        problems.add(&error.span().unwrap_or(0..0), format!("invalid TOML: {}", error.message()), None);
    }
    // After a syntax error, problems of the recovered tables would be misleading.
    let table = if errors.is_empty() { table.into_inner() } else { DeTable::new() };
    let script = ScriptParser { problems: &mut problems, group_references: Vec::new() }.script(table);
    let mut found = problems.found;
    if found.is_empty() {
        return Ok(script);
    }
    found.sort_by_key(|problem| problem.line);
    Err(ScriptError { problems: found })
}

struct ScriptParser<'p, 't> {
    problems: &'p mut Problems<'t>,
    /// The referenced groups and their spans.
    group_references: Vec<(String, std::ops::Range<usize>)>,
}

impl ScriptParser<'_, '_> {
    fn script(mut self, table: DeTable<'_>) -> Script {
        let mut members = self.problems.members(table, &["turn", "default"], "a script");
        let mut turns = Vec::new();
        if let Some(list) = members.remove("turn") {
            let span = list.span();
            match list.into_inner() {
                DeValue::Array(list) => turns.extend(list.into_iter().filter_map(|turn| self.turn(turn))),
                _ => self.problems.add(&span, "`turn` must be a list", Some("write [[turn]] with two brackets".into())),
            }
        }
        let default = match members.remove("default") {
            Some(default) => self.default(default),
            None => Turn { say: Template::parse(DEFAULT_REPLY).ok(), ..Turn::default() },
        };
        turns.push(default);
        self.check_groups(&turns);
        Script { turns }
    }

    fn turn(&mut self, turn: Node<'_>) -> Option<Turn> {
        let span = turn.span();
        let line = self.problems.line(&span);
        let before = self.problems.found.len();
        let table = self.problems.table("turn", turn)?;
        let mut members = self.problems.members(table, &["when", "say", "call", "fault", "repeat"], "a turn");
        let when = members.remove("when").map(|when| self.when(when)).unwrap_or_default();
        let say = members.remove("say").and_then(|say| self.template("say", &say));
        let calls = members.remove("call").map(|calls| self.calls(calls)).unwrap_or_default();
        let fault = members.remove("fault").and_then(|fault| self.fault(fault));
        let repeat = match members.remove("repeat") {
            Some(repeat) => self.problems.number("repeat", &repeat, 1..1001).unwrap_or(1),
            None => 1,
        };
        let only_fails = fault.as_ref().is_some_and(|fault| fault.status.is_some() && fault.times.is_none());
        // A misspelt key was reported already.
        let is_clean = self.problems.found.len() == before;
        if is_clean && say.is_none() && calls.is_empty() && !only_fails {
            let help = "write say = \"…\", or call = [{ tool = \"…\", args = { … } }]";
            self.problems.add(&span, "this turn has neither `say` nor `call`", Some(help.into()));
        }
        let is_malformed = fault.as_ref().is_some_and(|fault| fault.malformed);
        if is_clean && is_malformed && calls.is_empty() {
            self.problems.add(&span, "`malformed` applies to calls, and this turn has none", None);
        }
        Some(Turn { line, when, say, calls, fault, repeat })
    }

    fn default(&mut self, default: Node<'_>) -> Turn {
        let line = self.problems.line(&default.span());
        let Some(table) = self.problems.table("default", default) else { return Turn::default() };
        let mut members = self.problems.members(table, &["say", "fault"], "the default");
        let say = members.remove("say").and_then(|say| self.template("say", &say));
        let fault = members.remove("fault").and_then(|fault| self.fault(fault));
        Turn { line, say: say.or_else(|| Template::parse(DEFAULT_REPLY).ok()), fault, ..Turn::default() }
    }

    fn when(&mut self, when: Node<'_>) -> TurnConditions {
        let Some(table) = self.problems.table("when", when) else { return TurnConditions::default() };
        let known = ["user", "system", "result", "tool_available", "tool_missing", "tool_result"];
        let mut members = self.problems.members(table, &known, "`when`");
        let mut names =
            |name: &str| members.remove(name).map(|value| self.problems.texts(name, value)).unwrap_or_default();
        let (tool_available, tool_missing, tool_result) =
            (names("tool_available"), names("tool_missing"), names("tool_result"));
        let mut pattern = |name: &str| members.remove(name).and_then(|value| self.pattern(name, &value));
        let (user, system, result) = (pattern("user"), pattern("system"), pattern("result"));
        TurnConditions { user, system, result, tool_available, tool_missing, tool_result }
    }

    fn pattern(&mut self, key: &str, value: &Node<'_>) -> Option<Regex> {
        let text = self.problems.text(key, value)?;
        match Regex::new(&text) {
            Ok(pattern) => {
                for name in pattern.capture_names().flatten().filter(|name| RESERVED_NAMES.contains(name)) {
                    let help = Some("give the group another name".to_owned());
                    self.problems.add(&value.span(), format!("`{name}` is reserved and cannot name a group"), help);
                }
                Some(pattern)
            }
            Err(error) => {
                // The last line has the reason; the lines before it point to the position.
                let error = error.to_string();
                let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                let help = "write patterns in single quotes, so that backslashes need no escaping".to_owned();
                self.problems.add(&value.span(), format!("`{key}` is not a valid pattern: {reason}"), Some(help));
                None
            }
        }
    }

    fn template(&mut self, key: &str, value: &Node<'_>) -> Option<Template> {
        let text = self.problems.text(key, value)?;
        self.parse_template(&text, value)
    }

    fn parse_template(&mut self, text: &str, value: &Node<'_>) -> Option<Template> {
        match Template::parse(text) {
            Ok(template) => {
                let groups = template.placeholders().filter_map(|placeholder| match &placeholder.variable {
                    Variable::Group(name) => Some((name.clone(), value.span())),
                    _ => None,
                });
                self.group_references.extend(groups);
                Some(template)
            }
            Err(reason) => {
                self.problems.add(&value.span(), reason, None);
                None
            }
        }
    }

    fn calls(&mut self, calls: Node<'_>) -> Vec<ScriptedCall> {
        let span = calls.span();
        let DeValue::Array(list) = calls.into_inner() else {
            let help = Some("write call = [{ tool = \"…\", args = { … } }]".to_owned());
            self.problems.add(&span, "`call` must be a list", help);
            return Vec::new();
        };
        list.into_iter().filter_map(|call| self.call(call)).collect()
    }

    fn call(&mut self, call: Node<'_>) -> Option<ScriptedCall> {
        let span = call.span();
        let table = self.problems.table("call", call)?;
        let mut members = self.problems.members(table, &["tool", "args"], "a call");
        let arguments = match members.remove("args") {
            Some(args) if matches!(args.get_ref(), DeValue::Table(_)) => self.argument(args),
            Some(args) => {
                self.problems.add(&args.span(), "`args` must be a table, such as { city = \"$city\" }", None);
                None
            }
            None => Some(Argument::Table(BTreeMap::new())),
        };
        let Some(tool) = members.remove("tool") else {
            self.problems.add(&span, "this call names no tool", Some("write tool = \"…\"".into()));
            return None;
        };
        Some(ScriptedCall { tool: self.problems.text("tool", &tool)?, arguments: arguments? })
    }

    fn argument(&mut self, value: Node<'_>) -> Option<Argument> {
        let span = value.span();
        Some(match value.get_ref() {
            DeValue::String(text) => Argument::Text(self.parse_template(text, &value)?),
            DeValue::Boolean(value) => Argument::Literal((*value).into()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Argument::Literal(number.into()),
                Err(_) => {
                    self.problems.add(&span, "this number is too large", None);
                    return None;
                }
            },
            DeValue::Float(number) => match number.as_str().parse::<f64>().ok().filter(|number| number.is_finite()) {
                Some(number) => Argument::Literal(number.into()),
                None => {
                    self.problems.add(&span, "JSON cannot represent this number", None);
                    return None;
                }
            },
            DeValue::Datetime(datetime) => Argument::Literal(Value::String(datetime.to_string())),
            DeValue::Array(_) => {
                let DeValue::Array(list) = value.into_inner() else { return None };
                Argument::List(list.into_iter().filter_map(|item| self.argument(item)).collect())
            }
            DeValue::Table(_) => {
                let DeValue::Table(table) = value.into_inner() else { return None };
                let members =
                    table.into_iter().filter_map(|(key, item)| Some((key.get_ref().to_string(), self.argument(item)?)));
                Argument::Table(members.collect())
            }
        })
    }

    fn fault(&mut self, fault: Node<'_>) -> Option<Fault> {
        let span = fault.span();
        let table = self.problems.table("fault", fault)?;
        let known = ["status", "retry_after", "slow", "cut", "malformed", "times"];
        let mut members = self.problems.members(table, &known, "`fault`");
        let problems = &mut *self.problems;
        let mut fault = Fault::default();
        for (key, value) in std::mem::take(&mut members) {
            match key.as_str() {
                "status" => {
                    let status = problems.number("status", &value, 400..600);
                    fault.status = status.and_then(|status| u16::try_from(status).ok());
                }
                "retry_after" => fault.retry_after = problems.duration("retry_after", &value),
                "slow" => fault.slow = problems.duration("slow", &value),
                "cut" => fault.cut = problems.bool("cut", &value),
                "malformed" => fault.malformed = problems.bool("malformed", &value),
                _ => fault.times = problems.number("times", &value, 1..1_000_001),
            }
        }
        if fault.status.is_some() && (fault.cut || fault.malformed) {
            let message = "`status` cannot be combined with `cut` or `malformed`";
            problems.add(&span, message, Some("remove `status` or the others".into()));
        }
        Some(fault)
    }

    /// Reports every `$name` that is not a group of some pattern.
    fn check_groups(&mut self, turns: &[Turn]) {
        let patterns = turns.iter().filter_map(|turn| turn.when.user.as_ref());
        let groups: Vec<&str> = patterns.flat_map(|pattern| pattern.capture_names().flatten()).collect();
        for (name, span) in std::mem::take(&mut self.group_references) {
            if groups.contains(&name.as_str()) {
                continue;
            }
            let help = match closest(&name, groups.iter().copied().chain(RESERVED_NAMES), 1).first() {
                Some(close) => format!("did you mean `${close}`?"),
                None => "name it in a pattern: user = '(?<name>…)'; write `$$` for a dollar sign".into(),
            };
            self.problems.add(&span, format!("no `user` pattern has a group `{name}`"), Some(help));
        }
    }
}

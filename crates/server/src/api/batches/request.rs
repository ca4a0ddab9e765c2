//! Parses a model's message into the calls it asks for, each with its id.
//!
//! In: JSON in a provider's format. Out: calls, or for an invalid one a text that helps the model. Only JSON that is no
//! message at all is refused.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::problem::{ApiResult, Code, Problem};

/// A model's message, or the list of its calls.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct BatchBody(pub(super) Value);

impl JsonSchema for BatchBody {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Batch".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["object", "array"],
            "description": "A model's message or its calls, unchanged: `{\"tool_calls\": [{\"id\", \"type\", \"function\": {\"name\", \"arguments\"}}]}` or that list (openai); `{\"content\": [{\"type\": \"tool_use\", \"id\", \"name\", \"input\"}]}` or that list (anthropic); `{\"calls\": [{\"tool\", \"arguments\", \"callId\"}]}` or that list (no format).",
        })
    }
}

/// One call a model asked for.
#[derive(Debug, PartialEq)]
pub(super) struct RequestedCall {
    /// The id the model gave it.
    pub(super) id: Option<String>,
    /// The tool and its arguments, or the error text for the model.
    pub(super) call: Result<(String, Value), String>,
}

/// Parses `{"calls": [{"tool", "arguments", "callId"}]}`, or the list. Leaves invalid calls to the hub: each gets an
/// outcome.
pub(super) fn parse_plain(message: Value) -> ApiResult<Vec<RequestedCall>> {
    let calls = extract_list(message, "calls")?;
    let parse = |mut call: Value| {
        let value = call.get_mut("arguments").map(Value::take).unwrap_or_default();
        let arguments = if value.is_null() { Value::Object(Map::new()) } else { value };
        RequestedCall { id: text(&call, "callId"), call: Ok((text(&call, "tool").unwrap_or_default(), arguments)) }
    };
    Ok(calls.into_iter().map(parse).collect())
}

/// Parses the calls of an OpenAI Chat Completions message, or the list of them.
pub(super) fn parse_openai(message: Value) -> ApiResult<Vec<RequestedCall>> {
    let calls = extract_list(message, "tool_calls")?;
    let parse = |mut call: Value| {
        let function = call.get_mut("function").map(Value::take).unwrap_or_default();
        let id = text(&call, "id");
        RequestedCall { id, ..parse_call(function, "", "name", "arguments") }
    };
    Ok(calls.into_iter().map(parse).collect())
}

/// Parses the `tool_use` blocks of an Anthropic message, or the list of blocks.
pub(super) fn parse_anthropic(message: Value) -> ApiResult<Vec<RequestedCall>> {
    let blocks = match message {
        // A message of plain text asks for no calls.
        Value::Object(message) if message.get("content").is_some_and(Value::is_string) => Vec::new(),
        message => extract_list(message, "content")?,
    };
    let tool_uses = blocks.into_iter().filter(|block| block.get("type").and_then(Value::as_str) == Some("tool_use"));
    Ok(tool_uses.map(|block| parse_call(block, "id", "name", "input")).collect())
}

/// The list itself, or the member with this name. A message without calls has none.
fn extract_list(message: Value, name: &str) -> ApiResult<Vec<Value>> {
    let found = match message {
        Value::Array(list) => Some(list),
        Value::Object(mut message) => match message.remove(name) {
            Some(Value::Array(list)) => Some(list),
            Some(Value::Null) => Some(Vec::new()),
            // A model's message without calls, as opposed to anything else.
            None if message.contains_key("role") => Some(Vec::new()),
            _ => None,
        },
        _ => None,
    };
    found.ok_or_else(|| {
        let detail = format!("not a message: expected a list of calls, or an object with the list `{name}`");
        Problem::new(Code::INVALID_REQUEST, detail).hint("`?format=` names the provider whose format the message has")
    })
}

/// Parses one call, given the names of its members.
fn parse_call(mut call: Value, id: &str, tool: &str, arguments: &str) -> RequestedCall {
    let id = text(&call, id);
    let Some(tool) = text(&call, tool).filter(|tool| !tool.is_empty()) else {
        return RequestedCall {
            id,
            call: Err(format!(
                "This call names no tool: `{tool}` is missing. Make the call again with the name of a tool."
            )),
        };
    };
    let value = call.get_mut(arguments).map(Value::take).unwrap_or_default();
    let arguments = match value {
        Value::Null => Ok(Value::Object(Map::new())),
        // Models often send an empty string instead of an empty object.
        Value::String(text) if text.trim().is_empty() => Ok(Value::Object(Map::new())),
        Value::String(text) => parse_arguments(&tool, &text),
        value => Ok(value),
    };
    RequestedCall { id, call: arguments.map(|arguments| (tool, arguments)) }
}

fn parse_arguments(tool: &str, text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| {
        format!(
            "The arguments of `{tool}` are not valid JSON: {error}. Nothing was done. Make the call again with the arguments as \
             one complete JSON object."
        )
    })
}

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn calls(requested: ApiResult<Vec<RequestedCall>>) -> Vec<(Option<String>, String, Value)> {
        let requested = requested.expect("a message");
        let calls = requested
            .into_iter()
            .map(|requested| requested.call.map(|(tool, arguments)| (requested.id, tool, arguments)));
        calls.collect::<Result<_, _>>().expect("calls that make sense")
    }

    #[test]
    fn a_message_and_its_list_of_calls_are_the_same() {
        let list = json!([{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}}]);
        let message = json!({"role": "assistant", "content": null, "tool_calls": list});
        let expected = vec![(Some("c1".into()), "add".into(), json!({"a": 1}))];
        assert_eq!(calls(parse_openai(list)), expected);
        assert_eq!(calls(parse_openai(message)), expected);
        let blocks = json!([
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
        ]);
        assert_eq!(calls(parse_anthropic(json!({"role": "assistant", "content": blocks}))), expected);
        assert_eq!(calls(parse_anthropic(blocks)), expected);
        let plain = json!([{"tool": "add", "arguments": {"a": 1}, "callId": "c1"}]);
        assert_eq!(calls(parse_plain(json!({"calls": plain}))), expected);
    }

    #[test]
    fn a_message_without_calls_asks_for_nothing() {
        assert_eq!(calls(parse_openai(json!({"role": "assistant", "content": "hello"}))), vec![]);
        assert_eq!(calls(parse_openai(json!({"role": "assistant", "tool_calls": null}))), vec![]);
        assert_eq!(calls(parse_anthropic(json!({"role": "assistant", "content": "hello"}))), vec![]);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for nonsense in [json!({}), json!({"tool_calls": 7}), json!({"messages": []})] {
            assert!(
                parse_openai(nonsense.clone()).is_err()
                    && parse_anthropic(nonsense.clone()).is_err()
                    && parse_plain(nonsense).is_err()
            );
        }
    }

    #[test]
    fn a_call_that_makes_no_sense_gets_a_word_of_help() {
        let requested = parse_openai(json!([
            {"id": "c1", "function": {"name": "add", "arguments": "{\"a\": 1"}},
            {"id": "c2", "function": {"arguments": "{}"}},
            {"id": "c3"},
            7,
            {"id": "c5", "function": {"name": "now", "arguments": ""}},
        ]));
        let requested = requested.expect("a message");
        assert!(requested[0].call.as_ref().unwrap_err().contains("not valid JSON"), "{requested:?}");
        assert!(
            requested[1..4]
                .iter()
                .all(|requested| requested.call.as_ref().is_err_and(|help| help.contains("names no tool")))
        );
        assert_eq!(requested[4].call, Ok(("now".into(), json!({}))));
    }
}

//! Parses a model's message into the calls it asks for, each with its id.
//!
//! In: JSON in a provider's format. Out: calls, or for an invalid one a text that helps the model. Only JSON that is no
//! message at all is refused.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value};
use toolhub_core::{
    export::Format,
    json::{self, CompactJson, JsonError, JsonLimits},
};

use super::shape;
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
            "description": "A model's message or its calls, unchanged: `{\"tool_calls\": [{\"id\", \"type\", \"function\": {\"name\", \"arguments\"}}]}` or that list (openai); `{\"output\": [{\"type\": \"function_call\", \"call_id\", \"name\", \"arguments\"}]}` or that list (openai-responses); `{\"content\": [{\"type\": \"tool_use\", \"id\", \"name\", \"input\"}]}` or that list (anthropic); `{\"parts\": [{\"functionCall\": {\"name\", \"args\"}}]}`, that list, or the response with it (gemini); `{\"jsonrpc\", \"id\", \"method\": \"tools/call\", \"params\": {\"name\", \"arguments\"}}` or a list of these (mcp); `{\"calls\": [{\"tool\", \"arguments\", \"callId\"}]}` or that list (no format).",
        })
    }
}

/// The member with the calls of a batch without format.
const PLAIN: &str = "calls";

/// One call a model asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RequestedCall {
    /// The id the model gave it: a text, or with MCP also a number.
    pub(super) id: Option<Value>,
    /// The tool's name, as the model wrote it.
    pub(super) tool: String,
    /// The arguments, or the error text for the model.
    pub(super) arguments: Result<CompactJson, String>,
}

/// Parses a message in this format; without one, `{"calls": [{"tool", "arguments", "callId"}]}` or the list.
/// Refuses a message whose calls are in another format: a client that got an empty answer would take it for done.
pub(super) fn parse(format: Option<Format>, message: Value) -> ApiResult<Vec<RequestedCall>> {
    let found = shape::find_calls(&message);
    if message.get("role").and_then(Value::as_str) == Some("user") {
        return Err(Problem::new(
            Code::INVALID_REQUEST,
            "a message of the user has no calls; send the model's message",
        ));
    }
    let parsed = parse_as(format, message);
    let has_tool = parsed.as_ref().is_ok_and(|calls| calls.iter().any(|call| !call.tool.is_empty()));
    match found {
        Some(found) if found.format != format && !has_tool => Err(found.mismatch(format)),
        _ => parsed,
    }
}

fn parse_as(format: Option<Format>, message: Value) -> ApiResult<Vec<RequestedCall>> {
    match format {
        None => parse_plain(message),
        Some(Format::OpenAi) => parse_openai(message),
        Some(Format::OpenAiResponses) => parse_responses(message),
        Some(Format::Anthropic) => parse_anthropic(message),
        Some(Format::Gemini) => parse_gemini(message),
        Some(Format::Mcp) => parse_mcp(message),
    }
}

/// Leaves invalid calls to the hub: each gets an outcome.
fn parse_plain(message: Value) -> ApiResult<Vec<RequestedCall>> {
    let calls = extract_list(message, PLAIN)?;
    let parse = |mut call: Value| {
        let value = call.get_mut("arguments").map(Value::take).unwrap_or_default();
        let arguments = if value.is_null() { Value::Object(Map::new()) } else { value };
        let id = text(&call, "callId").map(Value::from);
        RequestedCall { id, tool: text(&call, "tool").unwrap_or_default(), arguments: Ok(arguments.into()) }
    };
    Ok(calls.into_iter().map(parse).collect())
}

/// The calls of an OpenAI Chat Completions message, or the list of them.
fn parse_openai(message: Value) -> ApiResult<Vec<RequestedCall>> {
    let calls = extract_list(message, "tool_calls")?;
    let parse = |mut call: Value| {
        let function = call.get_mut("function").map(Value::take).unwrap_or_default();
        parse_call(text(&call, "id").map(Value::from), function, "arguments")
    };
    Ok(calls.into_iter().map(parse).collect())
}

/// The `function_call` items of an OpenAI Responses output, or the list of items.
fn parse_responses(message: Value) -> ApiResult<Vec<RequestedCall>> {
    let calls = items_of_type(extract_list(message, "output")?, "function_call");
    Ok(calls.map(|call| parse_call(text(&call, "call_id").map(Value::from), call, "arguments")).collect())
}

/// The `tool_use` blocks of an Anthropic message, or the list of blocks.
fn parse_anthropic(message: Value) -> ApiResult<Vec<RequestedCall>> {
    let blocks = match message {
        // A message of plain text asks for no calls.
        Value::Object(message) if message.get("content").is_some_and(Value::is_string) => Vec::new(),
        message => extract_list(message, "content")?,
    };
    let calls = items_of_type(blocks, "tool_use");
    Ok(calls.map(|call| parse_call(text(&call, "id").map(Value::from), call, "input")).collect())
}

/// The `functionCall` parts of a Gemini content, of a response with one, or the list of parts.
fn parse_gemini(mut message: Value) -> ApiResult<Vec<RequestedCall>> {
    if let Some(content) = message.pointer_mut("/candidates/0/content") {
        message = content.take();
    } else if let Some(content) = message.get_mut("content") {
        message = content.take();
    }
    let parts = extract_list(message, "parts")?;
    let calls = parts.into_iter().filter_map(|mut part| {
        let call = ["functionCall", "function_call"].iter().find_map(|name| part.get_mut(*name).map(Value::take))?;
        Some(parse_call(text(&call, "id").map(Value::from), call, "args"))
    });
    Ok(calls.collect())
}

/// An MCP `tools/call` request, or a list of them.
fn parse_mcp(message: Value) -> ApiResult<Vec<RequestedCall>> {
    let requests = match message {
        Value::Array(list) => list,
        Value::Object(request) if request.contains_key("params") => vec![Value::Object(request)],
        _ => return Err(no_message("a `tools/call` request, or a list of them")),
    };
    let parse = |mut request: Value| {
        let id = request.get("id").filter(|id| id.is_string() || id.is_number()).cloned();
        let params = request.get_mut("params").map(Value::take).unwrap_or_default();
        match request.get("method").and_then(Value::as_str) {
            None | Some("tools/call") => parse_call(id, params, "arguments"),
            Some(method) => RequestedCall {
                id,
                tool: String::new(),
                arguments: Err(format!("`{method}` is not a call of a tool; only `tools/call` is answered here.")),
            },
        }
    };
    Ok(requests.into_iter().map(parse).collect())
}

fn items_of_type(items: Vec<Value>, name: &'static str) -> impl Iterator<Item = Value> {
    items.into_iter().filter(move |item| item.get("type").and_then(Value::as_str) == Some(name))
}

/// The list itself, or the member with this name. A message without calls has none.
fn extract_list(message: Value, name: &str) -> ApiResult<Vec<Value>> {
    let found = match message {
        Value::Array(list) => Some(list),
        Value::Object(mut message) => match message.remove(name) {
            Some(Value::Array(list)) => Some(list),
            Some(Value::Null) => Some(Vec::new()),
            // A model's message without calls, as opposed to anything else.
            None if message.contains_key("role") && name != PLAIN => Some(Vec::new()),
            _ => None,
        },
        _ => None,
    };
    found.ok_or_else(|| no_message(&format!("a list of calls, or an object with the list `{name}`")))
}

fn no_message(expected: &str) -> Problem {
    Problem::new(Code::INVALID_REQUEST, format!("not a message: expected {expected}"))
        .hint(format!("`?format=` names the format of the message: {}", shape::format_names()))
}

/// Parses one call with a `name` and arguments.
fn parse_call(id: Option<Value>, mut call: Value, arguments: &str) -> RequestedCall {
    let Some(tool) = text(&call, "name").filter(|tool| !tool.is_empty()) else {
        let help = "This call names no tool: `name` is missing. Make the call again with the name of a tool.";
        return RequestedCall { id, tool: String::new(), arguments: Err(help.into()) };
    };
    let value = call.get_mut(arguments).map(Value::take).unwrap_or_default();
    let arguments = match value {
        Value::Null => Ok(Value::Object(Map::new()).into()),
        // Models often send an empty string instead of an empty object.
        Value::String(text) if text.trim().is_empty() => Ok(Value::Object(Map::new()).into()),
        Value::String(text) => parse_arguments(&tool, &text),
        value => Ok(value.into()),
    };
    RequestedCall { id, tool, arguments }
}

fn parse_arguments(tool: &str, text: &str) -> Result<CompactJson, String> {
    json::parse(text.as_bytes(), JsonLimits::default()).map_err(|error| match error {
        JsonError::Invalid(error) => format!(
            "The arguments of `{tool}` are not valid JSON: {error}. Nothing was done. Make the call again with the arguments as \
             one complete JSON object."
        ),
        limit => format!("The arguments of `{tool}` are too large: {limit}. Nothing was done. Send less at once."),
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
    fn check(format: Option<Format>, message: &Value, expected: &[(Value, &str, Value)]) {
        let requested = parse(format, message.clone()).unwrap_or_else(|_| panic!("not a message: {message}"));
        let arguments = |call: RequestedCall| call.arguments.map(CompactJson::into_value);
        let calls =
            requested.into_iter().map(|call| (call.id.clone().unwrap_or_default(), call.tool.clone(), arguments(call)));
        let expected = expected.iter().cloned().map(|(id, tool, arguments)| (id, tool.to_owned(), Ok(arguments)));
        assert_eq!(calls.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{message}");
    }

    #[test]
    fn a_message_and_its_list_of_calls_are_the_same_in_every_format() {
        let expected = [(json!("c1"), "add", json!({"a": 1}))];
        let no_id = [(Value::Null, "add", json!({"a": 1}))];
        let openai = json!([{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}}]);
        check(Some(Format::OpenAi), &json!({"role": "assistant", "content": null, "tool_calls": openai}), &expected);
        check(Some(Format::OpenAi), &openai, &expected);
        let items = json!([
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": "{\"a\": 1}"},
        ]);
        check(Some(Format::OpenAiResponses), &json!({"id": "resp_1", "output": items}), &expected);
        check(Some(Format::OpenAiResponses), &items, &expected);
        let blocks = json!([
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
        ]);
        check(Some(Format::Anthropic), &json!({"role": "assistant", "content": blocks}), &expected);
        check(Some(Format::Anthropic), &blocks, &expected);
        let parts = json!([{"text": "Let me see."}, {"functionCall": {"name": "add", "args": {"a": 1}}}]);
        check(Some(Format::Gemini), &json!({"role": "model", "parts": parts}), &no_id);
        let response = json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]});
        check(Some(Format::Gemini), &response, &no_id);
        check(Some(Format::Gemini), &parts, &no_id);
        check(
            Some(Format::Gemini),
            &json!([{"function_call": {"id": "c1", "name": "add", "args": {"a": 1}}}]),
            &expected,
        );
        let request = |id: Value| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}});
        check(Some(Format::Mcp), &request(json!("c1")), &expected);
        check(Some(Format::Mcp), &json!([request(json!(7))]), &[(json!(7), "add", json!({"a": 1}))]);
        let plain = json!([{"tool": "add", "arguments": {"a": 1}, "callId": "c1"}]);
        check(None, &json!({"calls": plain}), &expected);
    }

    #[test]
    fn a_message_without_calls_asks_for_nothing() {
        check(Some(Format::OpenAi), &json!({"role": "assistant", "content": "hello"}), &[]);
        check(Some(Format::OpenAi), &json!({"role": "assistant", "tool_calls": null}), &[]);
        check(Some(Format::Anthropic), &json!({"role": "assistant", "content": "hello"}), &[]);
        check(Some(Format::OpenAiResponses), &json!({"output": [{"type": "message", "content": []}]}), &[]);
        check(Some(Format::Gemini), &json!({"role": "model", "parts": [{"text": "hello"}]}), &[]);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for nonsense in [json!({}), json!({"tool_calls": 7}), json!({"messages": []}), json!("hello")] {
            for format in Format::ALL.map(Some).into_iter().chain([None]) {
                assert!(parse(format, nonsense.clone()).is_err(), "{format:?} {nonsense}");
            }
        }
    }

    #[test]
    fn calls_in_another_format_are_refused_and_the_format_is_named() {
        let call = json!({"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}});
        let block = json!({"type": "tool_use", "id": "c1", "name": "add", "input": {}});
        let item = json!({"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"});
        let part = json!({"functionCall": {"name": "add", "args": {}}});
        let request =
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {}}});
        let messages = [
            (Some(Format::OpenAi), json!({"role": "assistant", "content": null, "tool_calls": [call]})),
            (Some(Format::OpenAi), json!([call])),
            (Some(Format::Anthropic), json!({"role": "assistant", "content": [block]})),
            (Some(Format::Anthropic), json!([block])),
            (Some(Format::OpenAiResponses), json!({"output": [item]})),
            (Some(Format::OpenAiResponses), json!([item])),
            (Some(Format::Gemini), json!({"role": "model", "parts": [part]})),
            (Some(Format::Gemini), json!([part])),
            (Some(Format::Mcp), request.clone()),
            (Some(Format::Mcp), json!([request])),
            (None, json!({"calls": [{"tool": "add"}]})),
            (None, json!([{"tool": "add", "arguments": {}}])),
        ];
        for (right, message) in &messages {
            for format in Format::ALL.map(Some).into_iter().chain([None]) {
                let parsed = parse(format, message.clone());
                if format == *right {
                    assert_eq!(parsed.map(|calls| calls.len()).ok(), Some(1), "{format:?} {message}");
                    continue;
                }
                let detail =
                    parsed.expect_err("another format").to_json()["detail"].as_str().unwrap_or_default().to_owned();
                let advice = right.map_or("without `format`".to_owned(), |right| format!("use format={right}"));
                assert!(detail.contains(&advice), "{format:?} {message}: {detail}");
            }
        }
    }

    #[test]
    fn a_message_of_the_user_and_a_message_without_format_are_refused() {
        for format in Format::ALL {
            assert!(parse(Some(format), json!({"role": "user", "content": "hello", "parts": []})).is_err(), "{format}");
        }
        let refused = parse(None, json!({"role": "assistant", "content": "hello"})).expect_err("no format");
        assert!(refused.to_json()["hint"].as_str().is_some_and(|hint| hint.contains("openai-responses")));
    }

    #[test]
    fn a_call_that_makes_no_sense_gets_a_word_of_help() {
        let calls = json!([
            {"id": "c1", "function": {"name": "add", "arguments": "{\"a\": 1"}},
            {"id": "c2", "function": {"arguments": "{}"}},
            {"id": "c3"},
            7,
            {"id": "c5", "function": {"name": "now", "arguments": ""}},
        ]);
        let requested = parse(Some(Format::OpenAi), calls).expect("a message");
        let help = |index: usize| requested[index].arguments.as_ref().err().map(String::as_str).unwrap_or_default();
        assert!(help(0).contains("not valid JSON"), "{requested:?}");
        assert!((1..4).all(|index| help(index).contains("names no tool")), "{requested:?}");
        assert_eq!((requested[4].tool.as_str(), &requested[4].arguments), ("now", &Ok(json!({}).into())));
        let list = json!([{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}]);
        let requested = parse(Some(Format::Mcp), list).expect("a message");
        assert!(requested[0].arguments.as_ref().is_err_and(|help| help.contains("tools/list")), "{requested:?}");
    }
}

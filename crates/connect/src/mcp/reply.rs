//! Reads the result of `tools/call`, and those of requests that read prompts and resources.
//!
//! In: its JSON text, and what the tool promised. Out: the reply of the call, the questions that the server asks first, or the error
//! that the tool reported. A content block that is not understood is left out and named; the others pass. `error.rs` says what each
//! failure means for the call.

mod block;

use std::sync::Arc;

use serde_json::{Map, Value};
use toolhub_core::{
    Content, Reply, ToolError,
    json::{self, JsonError, JsonLimits},
    offload,
    schema::Schema,
};

use self::block::Blocks;
use super::error;
use crate::{secret_mask::SecretMask, truncate::truncate};

/// Longest `resultType` in an error text.
const MAX_SHOWN_CHARS: usize = 80;

/// What is known about the tool whose result is read.
#[derive(Clone, Default)]
pub(crate) struct ExpectedResult {
    /// The secrets that the server knows and must not reach a model.
    pub(crate) secrets: Arc<SecretMask>,
    /// Its output schema.
    pub(crate) output: Option<Schema>,
    /// Whether it changes nothing, so that an error has no effect.
    pub(crate) read_only: bool,
}

/// A result that is not an error.
#[derive(Debug, PartialEq)]
pub(crate) enum CallResult {
    /// The tool has finished.
    Complete {
        /// What it returned.
        reply: Reply,
        /// How the output violates the tool's own output schema. It passes all the same.
        mismatch: Option<String>,
    },
    /// The server needs input before it goes on.
    InputRequired(InputRequired),
}

/// What a server asks for. The call is made again with the answers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct InputRequired {
    /// The questions by their keys, as the server sent them.
    pub(crate) requests: Map<String, Value>,
    /// What the server wants back with the answers.
    pub(crate) request_state: Option<String>,
}

/// Reads a result; a large one on a blocking thread.
///
/// # Errors
/// When the tool reported an error, or the text is not a result.
pub(crate) async fn read(text: String, expected: ExpectedResult) -> Result<CallResult, ToolError> {
    offload::run(text.len(), move || read_result(&text, &expected, complete)).await
}

/// Reads a result that is passed on as it is, if it has this member; a large one on a blocking thread.
///
/// # Errors
/// When the text is not such a result.
pub(crate) async fn read_plain(
    text: String,
    member: &'static str,
    expected: ExpectedResult,
) -> Result<CallResult, ToolError> {
    let plain = move |mut result: Map<String, Value>, expected: &ExpectedResult| {
        if !result.get(member).is_some_and(|member| member.is_array() || member.is_object()) {
            return Err(error::invalid_result(format!("it has no `{member}`"), expected.read_only));
        }
        // What belongs to the request and to caches, not to the result.
        ["_meta", "resultType", "ttlMs", "cacheScope"].into_iter().for_each(|member| drop(result.remove(member)));
        Ok(CallResult::Complete { reply: Reply::from(Value::Object(result)), mismatch: None })
    };
    offload::run(text.len(), move || read_result(&text, &expected, plain)).await
}

fn read_result(
    text: &str,
    expected: &ExpectedResult,
    complete: impl Fn(Map<String, Value>, &ExpectedResult) -> Result<CallResult, ToolError>,
) -> Result<CallResult, ToolError> {
    let violation = |what: &str| error::invalid_result(what, expected.read_only);
    let result = match json::parse::<Value>(text.as_bytes(), JsonLimits::default()) {
        Ok(Value::Object(result)) => result,
        Ok(_) => return Err(violation("it is not an object")),
        Err(JsonError::Invalid(_)) => return Err(violation("it is not JSON")),
        Err(limit @ (JsonError::TooManyValues { .. } | JsonError::TooDeep { .. })) => {
            return Err(error::unreadable_result(&limit, expected.read_only));
        }
    };
    let read = match result.get("resultType") {
        None | Some(Value::Null) if is_task(&result) => Err(violation(TASK)),
        None | Some(Value::Null) => complete(result, expected),
        Some(kind) => match kind.as_str() {
            Some("complete") => complete(result, expected),
            Some("input_required") => input_required(result).map_err(violation).map(CallResult::InputRequired),
            Some("task") => Err(violation(TASK)),
            Some(kind) => Err(violation(&format!("its type is `{}`", truncate(kind, MAX_SHOWN_CHARS)))),
            None => Err(violation("its type is not a text")),
        },
    };
    mask(read, &expected.secrets)
}

/// Masks what a model or a person reads. The request state goes back to the server as it is.
fn mask(read: Result<CallResult, ToolError>, secrets: &SecretMask) -> Result<CallResult, ToolError> {
    match read.map_err(|error| secrets.error(error))? {
        CallResult::Complete { reply, mismatch } => Ok(CallResult::Complete { reply: secrets.reply(reply), mismatch }),
        CallResult::InputRequired(mut asked) => {
            asked.requests.values_mut().for_each(|request| secrets.value(request));
            Ok(CallResult::InputRequired(asked))
        }
    }
}

const TASK: &str = "the server started a task instead of answering, which this client did not ask for";

/// Whether it is the result with which servers before the revision of July 2026 start a task.
fn is_task(result: &Map<String, Value>) -> bool {
    result.get("task").is_some_and(Value::is_object) && !result.contains_key("content")
}

fn input_required(mut result: Map<String, Value>) -> Result<InputRequired, &'static str> {
    let requests = match result.remove("inputRequests") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(requests)) => requests,
        Some(_) => return Err("its `inputRequests` are not an object"),
    };
    let request_state = match result.remove("requestState") {
        None | Some(Value::Null) => None,
        Some(Value::String(state)) => Some(state),
        Some(_) => return Err("its `requestState` is not a text"),
    };
    if requests.is_empty() && request_state.is_none() {
        return Err("it asks for input, but has neither `inputRequests` nor `requestState`");
    }
    Ok(InputRequired { requests, request_state })
}

fn complete(mut result: Map<String, Value>, expected: &ExpectedResult) -> Result<CallResult, ToolError> {
    let structured = result.remove("structuredContent").filter(|value| !value.is_null());
    let blocks = Blocks::read(result.remove("content").unwrap_or_default());
    // A server that says anything but no, such as `"yes"` or 1, means an error.
    if !matches!(result.get("isError"), None | Some(Value::Null | Value::Bool(false))) {
        return Err(error::reported_error(reported_text(&blocks.content, structured.as_ref()), expected.read_only));
    }
    let mismatch = expected.output.as_ref().and_then(|schema| find_mismatch(schema, structured.as_ref()));
    Ok(CallResult::Complete { reply: reply(blocks, structured), mismatch })
}

/// The text of an error that the tool itself reported.
fn reported_text(content: &[Content], structured: Option<&Value>) -> String {
    let texts: Vec<_> = content.iter().filter_map(Content::model_text).filter(|text| !text.trim().is_empty()).collect();
    match (texts.is_empty(), structured) {
        (false, _) => texts.join("\n"),
        (true, Some(structured)) => structured.to_string(),
        (true, None) => "The tool reported an error without a text.".into(),
    }
}

/// Structured content is the output, or else the text. Content that only repeats the output is left out.
fn reply(blocks: Blocks, structured: Option<Value>) -> Reply {
    let Blocks { mut content, left_out } = blocks;
    content.extend(left_out.map(Content::text));
    let only_text = match content.as_slice() {
        [Content::Text { text }] => Some(text.as_str()),
        _ => None,
    };
    match structured {
        Some(output) => {
            let repeats =
                only_text.is_some_and(|text| serde_json::from_str::<Value>(text).is_ok_and(|it| it == output));
            Reply { output, content: if repeats { Vec::new() } else { content } }
        }
        None if only_text.is_some() => match content.pop() {
            Some(Content::Text { text }) => Reply::from(Value::String(text)),
            _ => Reply::default(),
        },
        None => {
            let texts: Vec<&str> = content
                .iter()
                .filter_map(|block| if let Content::Text { text } = block { Some(text.as_str()) } else { None })
                .collect();
            let output = if texts.is_empty() { Value::Null } else { texts.join("\n").into() };
            Reply { output, content }
        }
    }
}

/// How an output violates its schema; values are not quoted, because the text is logged.
fn find_mismatch(schema: &Schema, output: Option<&Value>) -> Option<String> {
    let Some(output) = output else {
        return Some("the tool has an output schema, but its result has no `structuredContent`".into());
    };
    schema.mismatch(output).map(|mismatch| format!("the output {mismatch}"))
}

#[cfg(test)]
mod tests;

//! Encodes a call as the one-line JSON request to a program.
//!
//! In: the call, its arguments, and the state of the tool. Out: the bytes for the program's stdin.

use serde_json::{Map, Value, json};
use toolhub_core::{CallContext, Effect, ToolError};

/// Members with a fixed meaning, so that a state cannot use their names.
pub const RESERVED_MEMBERS: [&str; 6] = ["arguments", "call", "error", "id", "progress", "result"];

/// The request to a program that runs for this call only.
pub(super) fn encode_one_shot(arguments: &Value, cx: &CallContext) -> Vec<u8> {
    to_line(&json!({"arguments": arguments, "call": call_info(cx)}))
}

/// The request to a long-running program. It carries the state, if any, under the name that the tool uses.
pub(super) fn encode_numbered(id: u64, arguments: Value, state: Option<(&str, &Value)>, cx: &CallContext) -> Vec<u8> {
    let mut members =
        Map::from_iter([("id".into(), id.into()), ("arguments".into(), arguments), ("call".into(), call_info(cx))]);
    members.extend(state.map(|(name, state)| (name.to_owned(), state.clone())));
    to_line(&Value::Object(members))
}

/// Checks that requests and responses can carry a state under this name.
pub(super) fn check_state_name(name: &str) -> Result<(), ToolError> {
    if RESERVED_MEMBERS.contains(&name) {
        let text =
            format!("`state_parameter_name` is `{name}`, which is reserved in the program protocol; choose another");
        return Err(ToolError::new(text).hide_from_model().effect(Effect::None));
    }
    Ok(())
}

/// The call's identity, for programs that pass it on: ids, idempotency key and trace context.
fn call_info(cx: &CallContext) -> Value {
    let mut call = Map::from_iter([("id".to_owned(), Value::from(cx.call_id().to_string()))]);
    let more = [
        ("thread", cx.thread().map(ToString::to_string)),
        ("idempotencyKey", cx.idempotency_key().map(ToString::to_string)),
        ("traceparent", cx.trace().map(toolhub_core::TraceContext::traceparent)),
    ];
    call.extend(more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))));
    Value::Object(call)
}

fn to_line(request: &Value) -> Vec<u8> {
    let mut bytes = request.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

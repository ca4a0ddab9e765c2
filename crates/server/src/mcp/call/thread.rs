//! Which thread a call belongs to: the one of its address, its `_meta`, its session, or its arguments, in this order.

use rmcp::ErrorData;
use serde_json::{Map, Value};
use toolhub_core::{Tool, ids::ThreadId};

use super::super::request::McpContext;

/// The argument that names a thread where nothing else does.
pub(in crate::mcp) const THREAD_ARGUMENT: &str = "thread_id";
/// `_meta` key of the thread of a call.
pub(in crate::mcp) const THREAD_META: &str = "dev.toolhub/threadId";

/// The thread that the address, the request or the session names.
pub(in crate::mcp) fn named_thread(context: &McpContext) -> Result<Option<ThreadId>, ErrorData> {
    let request = &context.request;
    if let Some(thread) = &request.thread {
        return Ok(Some(thread.clone()));
    }
    match context.meta.get(THREAD_META) {
        Some(value) => parse_thread(value, &format!("_meta.{THREAD_META}")).map(Some),
        None => Ok(request.fixed_thread().cloned()),
    }
}

fn parse_thread(value: &Value, place: &str) -> Result<ThreadId, ErrorData> {
    let thread = value.as_str().and_then(|id| ThreadId::new(id).ok());
    thread.ok_or_else(|| ErrorData::invalid_params(thread_problem(place), None))
}

/// Takes the thread out of the arguments of a call. The error is for the model, which can repair it like any other argument.
pub(super) fn take_thread_argument(arguments: &mut Map<String, Value>) -> Result<Option<ThreadId>, String> {
    match arguments.remove(THREAD_ARGUMENT) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let thread = value.as_str().and_then(|id| ThreadId::new(id).ok());
            thread.map(Some).ok_or_else(|| thread_problem(THREAD_ARGUMENT))
        }
    }
}

/// Says what the name of a thread looks like.
fn thread_problem(place: &str) -> String {
    format!("`{place}` must have 1 to 128 letters, digits, `.`, `_`, `:` or `-`")
}

/// Whether a call may name its thread in its arguments.
pub(in crate::mcp) fn takes_thread_argument(tool: &Tool) -> bool {
    let properties = tool.definition.parameters.get("properties");
    tool.needs_thread() && properties.is_none_or(|properties| properties.get(THREAD_ARGUMENT).is_none())
}

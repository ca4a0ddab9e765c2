//! Which thread a call belongs to: the one of its address, its `_meta`, its session, or its arguments, in this order.

use rmcp::{ErrorData, model::RequestMetaObject};
use serde_json::Value;
use toolhub_core::{Tool, ids::ThreadId};

use super::super::request::McpRequest;

/// The argument that names a thread where nothing else does.
pub(in crate::mcp) const THREAD_ARGUMENT: &str = "thread_id";
/// `_meta` key of the thread of a call.
pub(in crate::mcp) const THREAD_META: &str = "dev.toolhub/threadId";

/// The thread that the address, the request or the session names.
pub(in crate::mcp) fn named_thread(
    request: &McpRequest,
    meta: &RequestMetaObject,
) -> Result<Option<ThreadId>, ErrorData> {
    if let Some(thread) = &request.thread {
        return Ok(Some(thread.clone()));
    }
    match meta.get(THREAD_META) {
        Some(value) => parse_thread(value, &format!("_meta.{THREAD_META}")).map(Some),
        None => Ok(request.fixed_thread().cloned()),
    }
}

pub(super) fn parse_thread(value: &Value, place: &str) -> Result<ThreadId, ErrorData> {
    let thread = value.as_str().and_then(|id| ThreadId::new(id).ok());
    thread.ok_or_else(|| {
        let text = format!("`{place}` must have 1 to 128 letters, digits, `.`, `_`, `:` or `-`");
        ErrorData::invalid_params(text, None)
    })
}

/// Whether a call may name its thread in its arguments.
pub(super) fn takes_thread_argument(tool: &Tool) -> bool {
    let properties = tool.definition.parameters.get("properties");
    tool.needs_thread() && properties.is_none_or(|properties| properties.get(THREAD_ARGUMENT).is_none())
}

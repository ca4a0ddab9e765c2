//! What an outcome becomes in the protocol: the only place that decides it.
//!
//! In: an outcome. Out: a result; `isError` with the text of the error table for everything a model can repair or work around; a
//! JSON-RPC error only for an unknown tool and for faults of this server.

use rmcp::{
    ErrorData,
    model::{CallToolResult, ContentBlock, MetaObject},
};
use serde_json::{Value, json};
use toolhub_core::{
    CallError, Content, ErrorKind, Kind, Outcome, Tool,
    ids::{ApprovalId, ThreadId},
};

use super::{
    call::{THREAD_ARGUMENT, THREAD_META, takes_thread_argument},
    request::McpRequest,
};

/// The scheme of addresses of artifacts.
pub(super) const ARTIFACTS: &str = "toolhub://artifacts/";
/// `_meta` key of the page where a person decides about a call.
const APPROVAL_META: &str = "dev.toolhub/approvalUrl";
/// `_meta` key of the error kind.
const CODE_META: &str = "dev.toolhub/code";

/// The result of a call. `tool`: its tool, if it still exists. `is_minted`: the caller named no thread.
pub(super) fn of(
    outcome: &Outcome,
    tool: Option<&Tool>,
    request: &McpRequest,
    is_minted: bool,
) -> Result<CallToolResult, ErrorData> {
    let mut result = match &outcome.error {
        Some(error) if is_fault(error.kind) => return Err(fault(error)),
        Some(error) => refusal(outcome, error, request),
        None => success(outcome, tool),
    };
    if let Some(thread) = outcome.thread.as_ref().filter(|_| is_minted) {
        let place = match tool.is_some_and(takes_thread_argument) {
            true => format!("Pass it as `{THREAD_ARGUMENT}`"),
            // A parameter of the tool has the name of the argument.
            false => format!("Send it as `_meta[\"{THREAD_META}\"]`"),
        };
        let text = format!("Thread: {thread}. {place} in the next calls of this conversation.");
        result.content.push(ContentBlock::text(text));
        meta(&mut result).insert(THREAD_META.into(), thread.as_str().into());
    }
    Ok(result)
}

/// Whether the fault is this server's, so that no change of the call helps.
pub(super) fn is_fault(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Internal | ErrorKind::StoreUnavailable | ErrorKind::StateUnreadable)
}

/// The JSON-RPC error for a fault of this server. The text for operators stays in the log and the journal.
pub(super) fn fault(error: &CallError) -> ErrorData {
    ErrorData::internal_error(error.model.clone(), Some(json!({"code": error.kind.name()})))
}

/// A call that was not made, for a reason that its model can repair.
pub(super) fn refused(kind: ErrorKind, reason: impl Into<String>) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(reason.into())]);
    meta(&mut result).insert(CODE_META.into(), kind.name().into());
    result
}

/// A call that did not succeed.
fn refusal(outcome: &Outcome, error: &CallError, request: &McpRequest) -> CallToolResult {
    // The text of a call that needs approval names the approval.
    let mut result = CallToolResult::error(vec![ContentBlock::text(outcome.model_text().into_owned())]);
    if let Some(approval) = error.approval().filter(|_| error.kind == ErrorKind::ApprovalRequired) {
        let url = approval_url(approval, request);
        let link = json!({
            "type": "resource_link", "uri": url, "name": approval, "title": "Decide about this call",
            "mimeType": "text/html", "annotations": {"audience": ["user"]},
        });
        result.content.extend(serde_json::from_value::<ContentBlock>(link).ok());
        meta(&mut result).insert(APPROVAL_META.into(), url.into());
    }
    meta(&mut result).insert(CODE_META.into(), error.kind.name().into());
    result
}

/// `_meta` of a task: the approval it waits for, and the thread that the hub chose for it.
pub(super) fn task_meta(
    approval: Option<ApprovalId>,
    minted: Option<&ThreadId>,
    request: &McpRequest,
) -> Option<MetaObject> {
    let mut meta = MetaObject::default();
    if let Some(approval) = approval {
        meta.insert(APPROVAL_META.into(), approval_url(approval, request).into());
    }
    if let Some(thread) = minted {
        meta.insert(THREAD_META.into(), thread.as_str().into());
    }
    (!meta.is_empty()).then_some(meta)
}

/// The page where a person decides about a call.
fn approval_url(approval: ApprovalId, request: &McpRequest) -> String {
    format!("{}/{approval}", request.approvals_url)
}

/// Whether clients are shown the output schema. They refuse every answer without structured content that fits it, and the outputs of
/// other people's services pass as they are.
pub(super) fn lists_output_schema(tool: &Tool) -> bool {
    let definition = &tool.definition;
    definition.output_schema.is_some() && definition.origin.is_none() && definition.kind != Kind::Rest
}

/// A call that succeeded.
fn success(outcome: &Outcome, tool: Option<&Tool>) -> CallToolResult {
    let has_artifact = outcome.content.iter().any(|block| matches!(block, Content::Artifact { .. }));
    let mut content: Vec<ContentBlock> = outcome.content.iter().filter_map(block).collect();
    let has_text = outcome.content.iter().any(|block| matches!(block, Content::Text { .. }));
    if content.is_empty() || (!has_text && !outcome.output.is_null() && !has_artifact) {
        content.insert(0, ContentBlock::text(output_text(&outcome.output)));
    }
    let mut result = CallToolResult::success(content);
    // Clients of the legacy era accept objects only.
    // An answer that was cut is text with a link, unless its client insists on structured content.
    let is_structured = |tool: &Tool| tool.fits(&outcome.output) && (!has_artifact || lists_output_schema(tool));
    if outcome.output.is_object() && tool.is_some_and(is_structured) {
        result.structured_content = Some(outcome.output.clone());
    }
    result
}

fn output_text(output: &Value) -> String {
    match output {
        Value::Null => "done".to_owned(),
        Value::String(text) => text.clone(),
        output => output.to_string(),
    }
}

fn block(content: &Content) -> Option<ContentBlock> {
    let block = match content {
        Content::Text { text } => return Some(ContentBlock::text(text.as_str())),
        Content::Artifact { id, mime_type, bytes } => json!({
            "type": "resource_link", "uri": format!("{ARTIFACTS}{id}"), "name": id, "mimeType": mime_type, "size": bytes,
            "description": "The whole content, which is too long for a model",
        }),
        // The other blocks have the form of the protocol already.
        content => serde_json::to_value(content).ok()?,
    };
    serde_json::from_value(block).ok()
}

fn meta(result: &mut CallToolResult) -> &mut MetaObject {
    result.meta.get_or_insert_default()
}

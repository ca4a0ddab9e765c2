//! Formats the results of a model's calls as messages of its provider, and the list of the calls beside them.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use toolhub_core::{
    CallError, Content, ErrorKind, Outcome, Status, ToolHub,
    export::Format,
    ids::{ApprovalId, CallId, Tenant},
};

use super::execution::{CallEnd, CallState};
use crate::{
    api::calls::{ApprovalLink, CallView},
    links::Links,
    problem::ApiResult,
};

/// The results of the calls of a batch.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "BatchAnswers")]
pub(super) struct BatchResponse {
    /// With a format: messages for the model, to append to the conversation unchanged. Absent while calls continue in
    /// the background.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<Vec<Value>>,
    /// Where each call stands, in the order of the calls.
    calls: Vec<BatchCall>,
}

/// A call of a batch.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum BatchCall {
    /// Without a format: the call with its outcome.
    Whole(Box<CallView>),
    /// Beside messages, which have the results.
    Short(ShortCall),
}

/// Where a call stands, without its result.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "BatchCall")]
struct ShortCall {
    /// The call; null if it was not made, because the model's message is not valid.
    id: Option<CallId>,
    /// The id the model gave to it.
    model_call_id: Option<Value>,
    /// The tool's name as the model wrote it.
    tool: String,
    /// The stage it has reached: `awaiting_approval` if the same batch continues it once it is approved, `scheduled` if it
    /// waits for an earlier call of the batch.
    status: Status,
    /// The approval it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<ApprovalLink>,
    /// Whether this is the stored outcome of an earlier batch with the same idempotency key.
    replayed: bool,
    /// Why it did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ShortError>,
}

/// The error of a call, whose text is in the messages.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "BatchCallError")]
struct ShortError {
    /// The stable error code.
    code: &'static str,
}

impl BatchResponse {
    /// The response; with a format it has messages for the model.
    pub(super) async fn new(
        format: Option<Format>,
        ends: Vec<CallEnd>,
        hub: &ToolHub,
        tenant: &Tenant,
        links: &Links,
    ) -> ApiResult<Self> {
        let messages = format.map(|format| messages(format, &ends));
        let mut calls = Vec::with_capacity(ends.len());
        for CallEnd { model_id, tool, state } in ends {
            let approval = match pending_approval(&state) {
                Some(id) => Some(approval_link(id, hub, tenant, links).await?),
                None => None,
            };
            calls.push(match state {
                CallState::Ended(outcome) if format.is_none() => {
                    let view = CallView::from_outcome(*outcome, links);
                    BatchCall::Whole(Box::new(match approval {
                        Some(approval) => view.awaiting(approval),
                        None => view,
                    }))
                }
                state => BatchCall::Short(short_call(model_id, tool, &state, approval)),
            });
        }
        Ok(Self { messages, calls })
    }
}

fn short_call(
    model_call_id: Option<Value>,
    tool: String,
    state: &CallState,
    approval: Option<ApprovalLink>,
) -> ShortCall {
    let error = |code| Some(ShortError { code });
    let (id, status, replayed, error) = match state {
        CallState::Ended(outcome) => {
            let status = if approval.is_some() { Status::AwaitingApproval } else { outcome.status };
            let code = outcome.error_kind().map(ErrorKind::name);
            (Some(outcome.id), status, outcome.replayed, code.and_then(error))
        }
        CallState::Open { id, status, .. } => (Some(*id), *status, false, None),
        CallState::Rejected(_) => (None, Status::Error, false, error(ErrorKind::ArgumentsInvalid.name())),
    };
    ShortCall { id, model_call_id, tool, status, approval, replayed, error }
}

/// The approval a call waits for.
fn pending_approval(state: &CallState) -> Option<ApprovalId> {
    match state {
        CallState::Ended(outcome) => {
            let required = outcome.error.as_ref().filter(|error| error.kind == ErrorKind::ApprovalRequired);
            required.and_then(CallError::approval)
        }
        CallState::Open { approval, .. } => *approval,
        CallState::Rejected(_) => None,
    }
}

async fn approval_link(id: ApprovalId, hub: &ToolHub, tenant: &Tenant, links: &Links) -> ApiResult<ApprovalLink> {
    let expires_at = hub.approval(tenant, id).await?.map(|approval| approval.expires_at);
    Ok(ApprovalLink { id, url: links.approval(id), expires_at })
}

/// The messages of a provider.
fn messages(format: Format, ends: &[CallEnd]) -> Vec<Value> {
    let each = |message: fn(&CallEnd) -> Value| ends.iter().map(message).collect();
    // One message with all results; none if there are no results.
    let together = |name: &str, result: fn(&CallEnd) -> Value| match ends {
        [] => Vec::new(),
        ends => vec![json!({"role": "user", name: ends.iter().map(result).collect::<Vec<_>>()})],
    };
    match format {
        Format::Anthropic => together("content", anthropic_result),
        Format::OpenAiResponses => {
            each(|end| json!({"type": "function_call_output", "call_id": end.model_id, "output": text(end)}))
        }
        Format::Gemini => together("parts", gemini_part),
        Format::Mcp => each(mcp_response),
        Format::OpenAi => each(|end| json!({"role": "tool", "tool_call_id": end.model_id, "content": text(end)})),
    }
}

fn anthropic_result(end: &CallEnd) -> Value {
    let images = images(end).map(|(data, mime_type)| {
        json!({"type": "image", "source": {"type": "base64", "media_type": mime_type, "data": data}})
    });
    let images: Vec<Value> = images.collect();
    let content: Value = if images.is_empty() {
        text(end).into()
    } else {
        std::iter::once(json!({"type": "text", "text": text(end)})).chain(images).collect()
    };
    let mut result = json!({"type": "tool_result", "tool_use_id": end.model_id, "content": content});
    if !is_success(end) {
        result["is_error"] = true.into();
    }
    result
}

fn gemini_part(end: &CallEnd) -> Value {
    let member = if is_success(end) { "output" } else { "error" };
    let mut response = json!({"name": end.tool, "response": {member: text(end)}});
    if let Some(id) = &end.model_id {
        response["id"] = id.clone();
    }
    json!({"functionResponse": response})
}

fn mcp_response(end: &CallEnd) -> Value {
    let mut content = vec![json!({"type": "text", "text": text(end)})];
    // The text already has the embedded texts; artifacts are no MCP content.
    let is_block = |block: &&Content| block.binary().is_some() || matches!(block, Content::ResourceLink(_));
    content.extend(blocks(end).iter().filter(is_block).map(|block| json!(block)));
    let mut result = json!({"content": content, "isError": !is_success(end)});
    if let CallState::Ended(outcome) = &end.state
        && outcome.is_success()
        && outcome.output.is_object()
    {
        result["structuredContent"] = outcome.output.clone();
    }
    json!({"jsonrpc": "2.0", "id": end.model_id, "result": result})
}

fn outcome(end: &CallEnd) -> Option<&Outcome> {
    if let CallState::Ended(outcome) = &end.state { Some(outcome) } else { None }
}

fn is_success(end: &CallEnd) -> bool {
    outcome(end).is_some_and(Outcome::is_success)
}

/// The images of a result: their bytes in base64, and their types.
fn images(end: &CallEnd) -> impl Iterator<Item = (&str, &str)> {
    blocks(end).iter().filter_map(|block| match block {
        Content::Image { data, mime_type } => Some((data.as_str(), mime_type.as_str())),
        _ => None,
    })
}

fn blocks(end: &CallEnd) -> &[Content] {
    outcome(end).map(|outcome| outcome.content.as_slice()).unwrap_or_default()
}

/// What the model reads. It names an approval by its id only: a model must not learn where approvals are answered.
fn text(end: &CallEnd) -> String {
    match &end.state {
        CallState::Ended(outcome) => outcome.model_text().into_owned(),
        CallState::Open { .. } => ErrorKind::IdempotencyInProgress.row().model.into(),
        CallState::Rejected(help) => help.clone(),
    }
}

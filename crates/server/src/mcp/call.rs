//! Calls of tools.
//!
//! In: the parameters of `tools/call`. Out: a result of the protocol. The call passes the pipeline like any other; a client that
//! cancels, or closes the stream of its request, cancels the call, unless it has an idempotency key.

use std::time::Duration;

use futures_util::StreamExt;
use rmcp::{
    ErrorData, Peer, RoleServer,
    model::{CallToolRequestParams, CallToolResponse, ProgressNotificationParam, ProgressToken, RequestMetaObject},
    service::RequestContext,
};
use serde_json::Value;
use tokio::time::Instant;
use toolhub_core::{
    CallHandle, CallUpdate, Outcome, Progress, Tool, ToolFilter, ToolHub, TraceContext, ids::ThreadId, suggest,
};

use super::{request::McpRequest, result};

/// The argument that names a thread where nothing else does.
pub(super) const THREAD_ARGUMENT: &str = "thread_id";
/// `_meta` key of the thread of a call.
pub(super) const THREAD_META: &str = "dev.toolhub/threadId";
/// `_meta` key of the idempotency key of a call.
const IDEMPOTENCY_META: &str = "dev.toolhub/idempotencyKey";
/// The least time from one progress notification of a call to the next.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// How many names an unknown one is answered with.
const MAX_SUGGESTIONS: usize = 3;

/// Makes the call.
pub(super) async fn run(
    hub: &ToolHub,
    params: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let request = McpRequest::of(&context)?;
    let found = hub.get(&params.name).filter(|_| request.toolset.contains(&params.name));
    let Some(tool) = found else { return Err(unknown_tool(hub, &request, &params.name)) };
    let mut arguments = params.arguments.unwrap_or_default();
    let mut thread = named_thread(&request, &context.meta)?;
    if thread.is_none() && takes_thread_argument(&tool) {
        thread = match arguments.remove(THREAD_ARGUMENT) {
            None | Some(Value::Null) => None,
            Some(value) => Some(parse_thread(&value, THREAD_ARGUMENT)?),
        };
    }
    let principal = &request.principal;
    let call = hub.call(params.name.as_ref(), Value::Object(arguments));
    let mut call = call.tenant(principal.tenant.clone()).caller(principal.caller.clone()).no_wait();
    let is_minted = thread.is_none();
    if let Some(thread) = thread {
        call = call.thread(thread.as_str());
    }
    if let Some(trace) =
        context.meta.get("traceparent").and_then(Value::as_str).and_then(|text| TraceContext::parse(text).ok())
    {
        call = call.trace(trace);
    }
    match context.meta.get(IDEMPOTENCY_META) {
        None => call = call.cancel_on(&context.ct),
        Some(Value::String(key)) => call = call.idempotency_key(key.as_str()),
        Some(_) => return Err(ErrorData::invalid_params(format!("`_meta.{IDEMPOTENCY_META}` is not a string"), None)),
    }
    let outcome = match context.meta.get_progress_token() {
        Some(token) => follow(call.start(), &context.peer, token).await,
        None => call.await,
    };
    result::of(&outcome, &tool, &request, is_minted)
}

/// Waits for the outcome, and passes the progress of the call on.
async fn follow(mut call: CallHandle, client: &Peer<RoleServer>, token: ProgressToken) -> Outcome {
    let mut updates = Box::pin(call.updates());
    let mut notifier = ProgressNotifier { client, token, last: None, done: 0.0 };
    loop {
        tokio::select! {
            biased;
            Some(update) = updates.next() => {
                if let CallUpdate::Progress(progress) = update {
                    notifier.notify(progress).await;
                }
            }
            outcome = call.outcome() => return outcome,
        }
    }
}

/// Sends progress notifications of one call, at most ten a second.
struct ProgressNotifier<'a> {
    client: &'a Peer<RoleServer>,
    token: ProgressToken,
    last: Option<Instant>,
    done: f64,
}

impl ProgressNotifier<'_> {
    async fn notify(&mut self, progress: Progress) {
        if self.last.is_some_and(|last| last.elapsed() < PROGRESS_INTERVAL) {
            return;
        }
        self.last = Some(Instant::now());
        // The protocol requires a number that grows; a tool may report none.
        self.done = progress.done.filter(|done| *done > self.done).unwrap_or(self.done + 1.0);
        let mut notification = ProgressNotificationParam::new(self.token.clone(), self.done);
        notification.total = progress.total;
        notification.message = (!progress.message.is_empty()).then_some(progress.message);
        // Fails if the client is gone; the call then ends by itself.
        let _ = self.client.notify_progress(notification).await;
    }
}

/// The thread that the address, the request or the session names.
pub(super) fn named_thread(request: &McpRequest, meta: &RequestMetaObject) -> Result<Option<ThreadId>, ErrorData> {
    if let Some(thread) = &request.thread {
        return Ok(Some(thread.clone()));
    }
    match meta.get(THREAD_META) {
        Some(value) => parse_thread(value, &format!("_meta.{THREAD_META}")).map(Some),
        None => Ok(request.fixed_thread().cloned()),
    }
}

fn parse_thread(value: &Value, place: &str) -> Result<ThreadId, ErrorData> {
    let thread = value.as_str().and_then(|id| ThreadId::new(id).ok());
    thread.ok_or_else(|| {
        let text = format!("`{place}` must have 1 to 128 letters, digits, `.`, `_`, `:` or `-`");
        ErrorData::invalid_params(text, None)
    })
}

/// Whether a call may name its thread in its arguments.
fn takes_thread_argument(tool: &Tool) -> bool {
    let properties = tool.definition.parameters.get("properties");
    tool.needs_thread() && properties.is_none_or(|properties| properties.get(THREAD_ARGUMENT).is_none())
}

fn unknown_tool(hub: &ToolHub, request: &McpRequest, name: &str) -> ErrorData {
    let tools = hub.list(&ToolFilter::default());
    let names = tools.iter().map(|tool| tool.definition.name.as_str()).filter(|name| request.toolset.contains(name));
    let name: String = name.chars().take(128).collect();
    let closest = suggest::closest(&name, names, MAX_SUGGESTIONS);
    let hint = if closest.is_empty() { String::new() } else { format!("; did you mean `{}`?", closest.join("`, `")) };
    ErrorData::invalid_params(format!("there is no tool `{name}`{hint}"), None)
}

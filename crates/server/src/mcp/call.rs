//! Calls of tools.
//!
//! In: the parameters of `tools/call`. Out: a result of the protocol. The call passes the pipeline like any other; a client that
//! cancels, or closes the stream of its request, cancels the call, unless it has an idempotency key.

use std::sync::Arc;

use futures_util::StreamExt;
use rmcp::{
    ErrorData, RoleServer,
    model::{CallToolRequestParams, CallToolResponse, InputRequiredResult, ProtocolVersion, RequestMetaObject},
    service::RequestContext,
};
use serde_json::Value;
use toolhub_core::{CallHandle, CallRequest, Outcome, Tool, ToolFilter, ToolHub, TraceContext, ids::ThreadId, suggest};

use super::{
    input::{ClientInput, accepted_kinds, to_result},
    interactive_calls::{CallOwner, CallStep, InteractiveCall, SuspendedCalls},
    request::McpRequest,
    result,
    updates::UpdateNotifier,
};

/// The argument that names a thread where nothing else does.
pub(super) const THREAD_ARGUMENT: &str = "thread_id";
/// `_meta` key of the thread of a call.
pub(super) const THREAD_META: &str = "dev.toolhub/threadId";
/// `_meta` key of the idempotency key of a call.
const IDEMPOTENCY_META: &str = "dev.toolhub/idempotencyKey";
/// How many names an unknown one is answered with.
const MAX_SUGGESTIONS: usize = 3;

/// Makes the calls of MCP clients.
pub(super) struct Calls {
    pub(super) hub: ToolHub,
    /// Calls of the modern era that asked their caller, which answers with another request.
    pub(super) suspended: Arc<SuspendedCalls>,
}

impl Calls {
    /// Makes a call, or goes on with one that asked its caller.
    pub(super) async fn run(
        &self,
        mut params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let request = McpRequest::of(&context)?;
        let found = self.hub.get(&params.name).filter(|_| request.toolset.contains(&params.name));
        let Some(tool) = found else { return Err(self.unknown_tool(&request, &params.name)) };
        let mut arguments = params.arguments.take().unwrap_or_default();
        let mut thread = named_thread(&request, &context.meta)?;
        if thread.is_none() && takes_thread_argument(&tool) {
            thread = match arguments.remove(THREAD_ARGUMENT) {
                None | Some(Value::Null) => None,
                Some(value) => Some(parse_thread(&value, THREAD_ARGUMENT)?),
            };
        }
        let caller = CallerOfCall { request: &request, tool: &tool, is_minted: thread.is_none() };
        if let Some(state) = params.request_state {
            let mut call = self.resume(&state, &caller)?;
            call.answer(params.input_responses.unwrap_or_default().into_iter().collect());
            return self.drive(call, &caller, &context).await;
        }
        let call = self.build(&caller, Value::Object(arguments), thread, &context)?;
        let accepted = accepted_kinds(context.client_capabilities().as_ref());
        let mut notifier = notifier(&request, &context);
        if is_modern(&context) && !accepted.is_empty() {
            // Not cancelled with the request, which ends when the call asks its caller.
            return self.drive(InteractiveCall::start(call, accepted), &caller, &context).await;
        }
        let is_keyed = context.meta.contains_key(IDEMPOTENCY_META);
        let call = if is_keyed { call } else { call.cancel_on(&context.ct) };
        let outcome = if accepted.is_empty() && notifier.is_silent() {
            call.await
        } else {
            let input = ClientInput { client: context.peer.clone(), accepted };
            follow(call.input(Arc::new(input)).start(), &mut notifier).await
        };
        caller.result(&outcome)
    }

    /// Takes a call that waits for answers of this caller.
    fn resume(&self, state: &str, caller: &CallerOfCall<'_>) -> Result<InteractiveCall, ErrorData> {
        let call = self.suspended.take(state, &caller.owner());
        let call = call.map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
        if call.tool() == caller.tool.definition.name.as_str() {
            return Ok(call);
        }
        // Dropped, and so cancelled: its caller has lost its state.
        Err(ErrorData::invalid_params("the state belongs to the call of another tool; start again", None))
    }

    /// Follows a call until it ends or asks its caller.
    async fn drive(
        &self,
        mut call: InteractiveCall,
        caller: &CallerOfCall<'_>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut notifier = notifier(caller.request, context);
        let mut updates = Box::pin(call.handle().updates());
        loop {
            let step = tokio::select! {
                biased;
                Some(update) = updates.next() => {
                    notifier.notify(update).await;
                    continue;
                }
                step = call.next() => step,
                // Dropping the call cancels it, unless it has an idempotency key.
                () = context.ct.cancelled() => {
                    return Err(ErrorData::internal_error("the request was cancelled", None));
                }
            };
            let requests = match step {
                CallStep::Ended(outcome) => return caller.result(&outcome),
                CallStep::InputRequired(requests) => requests,
            };
            let (requests, inexpressible) = to_result(requests);
            call.decline(&inexpressible);
            if requests.is_empty() {
                continue;
            }
            let parked = self.suspended.park(caller.owner(), call);
            let state = parked.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
            let result = InputRequiredResult::new(Some(requests), Some(state.to_string()));
            return Ok(CallToolResponse::InputRequired(result));
        }
    }

    fn build<'a>(
        &'a self,
        caller: &CallerOfCall<'_>,
        arguments: Value,
        thread: Option<ThreadId>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallRequest<'a>, ErrorData> {
        let principal = &caller.request.principal;
        let call = self.hub.call(caller.tool.definition.name.as_str(), arguments);
        let mut call = call.tenant(principal.tenant.clone()).caller(principal.caller.clone()).no_wait();
        if let Some(thread) = thread {
            call = call.thread(thread.as_str());
        }
        if let Some(trace) = context.meta.get_traceparent().and_then(|text| TraceContext::parse(text).ok()) {
            call = call.trace(trace);
        }
        match context.meta.get(IDEMPOTENCY_META) {
            None => Ok(call),
            Some(Value::String(key)) => Ok(call.idempotency_key(key.as_str())),
            Some(_) => Err(ErrorData::invalid_params(format!("`_meta.{IDEMPOTENCY_META}` is not a string"), None)),
        }
    }

    fn unknown_tool(&self, request: &McpRequest, name: &str) -> ErrorData {
        let tools = self.hub.list(&ToolFilter::default());
        let names = tools.iter().map(|tool| tool.definition.name.as_str());
        let names = names.filter(|name| request.toolset.contains(name));
        let name: String = name.chars().take(128).collect();
        let closest = suggest::closest(&name, names, MAX_SUGGESTIONS);
        let hint =
            if closest.is_empty() { String::new() } else { format!("; did you mean `{}`?", closest.join("`, `")) };
        ErrorData::invalid_params(format!("there is no tool `{name}`{hint}"), None)
    }
}

/// Who makes a call of which tool.
struct CallerOfCall<'a> {
    request: &'a McpRequest,
    tool: &'a Tool,
    /// Whether the caller named no thread.
    is_minted: bool,
}

impl CallerOfCall<'_> {
    fn owner(&self) -> CallOwner {
        let principal = &self.request.principal;
        CallOwner { tenant: principal.tenant.clone(), caller: principal.caller.clone() }
    }

    fn result(&self, outcome: &Outcome) -> Result<CallToolResponse, ErrorData> {
        result::of(outcome, self.tool, self.request, self.is_minted)
    }
}

/// Waits for the outcome, and passes progress and log lines of the call on.
async fn follow(mut call: CallHandle, notifier: &mut UpdateNotifier) -> Outcome {
    let mut updates = Box::pin(call.updates());
    loop {
        tokio::select! {
            biased;
            Some(update) = updates.next() => notifier.notify(update).await,
            outcome = call.outcome() => return outcome,
        }
    }
}

/// Whether the request belongs to protocol version 2026-07-28 or a later one.
pub(super) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

#[allow(deprecated, reason = "log levels are deprecated, but clients still set them")]
fn notifier(request: &McpRequest, context: &RequestContext<RoleServer>) -> UpdateNotifier {
    let level = if is_modern(context) {
        context.meta.log_level()
    } else {
        request.session.as_ref().map(|session| session.log_level())
    };
    UpdateNotifier::new(context.peer.clone(), context.meta.get_progress_token(), level)
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

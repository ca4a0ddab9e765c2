//! Calls of tools.
//!
//! In: the parameters of `tools/call`. Out: a result of the protocol. The call passes the pipeline like any other; a client that
//! cancels, or closes the stream of its request, cancels the call, unless it has an idempotency key.

mod client_call;
mod pause;
mod tasks;
mod thread;

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use rmcp::{
    ErrorData,
    model::{CallToolRequestParams, CallToolResponse, ClientCapabilities, InputRequiredResult},
};
use serde_json::{Map, Value};
use toolhub_core::{
    ApprovalState, CallError, CallHandle, CallRequest, CancellationToken, ErrorKind, InputHandler, Outcome, Sealer,
    ToolHub, TraceContext, backend::StoreError, ids::ApprovalId,
};

use client_call::ClientCall;
pub(super) use pause::Pause;
use pause::{Resumed, suspend};
pub(super) use tasks::InteractiveTasks;
use thread::take_thread_argument;
pub(super) use thread::{THREAD_ARGUMENT, THREAD_META, named_thread, takes_thread_argument};

use super::{
    approvals::{self, ApprovalForms, Decision, FORM_KEY},
    input::{ClientInput, MissingInput, accepted_kinds, to_result},
    interactive_calls::{CallStep, InteractiveCall, SuspendedCalls},
    request::{ClientChannel, McpContext},
    result,
    search::{self, SearchCall},
    tool_list::ToolList,
    updates::UpdateNotifier,
};
use crate::settings::{McpApproval, McpMode};

/// `_meta` key of the idempotency key of a call.
pub(super) const IDEMPOTENCY_META: &str = "dev.toolhub/idempotencyKey";

/// How often the user of a client is asked to approve one call, which others may have decided meanwhile.
const MAX_FORMS: usize = 3;

/// Makes the calls of MCP clients.
pub(super) struct Calls {
    pub(super) hub: ToolHub,
    /// Calls of the modern era that asked their caller, which answers with another request.
    pub(super) suspended: Arc<SuspendedCalls>,
    pub(super) forms: ApprovalForms,
    pub(super) tools: Arc<ToolList>,
    /// After this time a call of a client that declared tasks becomes one.
    pub(super) task_after: Duration,
    pub(super) tasks: Arc<InteractiveTasks>,
    /// Ends forms that are open.
    pub(super) stopping: CancellationToken,
}

/// Lets other nodes go on with the calls and tasks that wait here.
pub(super) fn answer_other_nodes(hub: &ToolHub, suspended: &Arc<SuspendedCalls>, tasks: &Arc<InteractiveTasks>) {
    pause::answer_other_nodes(hub, suspended);
    tasks::answer_other_nodes(hub, tasks);
}

impl Calls {
    /// Makes a call, or goes on with one that asked its caller.
    pub(super) async fn run(
        &self,
        mut params: CallToolRequestParams,
        context: &McpContext,
    ) -> Result<CallToolResponse, ErrorData> {
        let request = &*context.request;
        if request.mode == McpMode::Search {
            let thread = named_thread(context)?;
            match Box::pin(search::call(params, &self.tools, request, thread.as_ref())).await? {
                SearchCall::Answered(result) => return Ok(CallToolResponse::Complete(result)),
                SearchCall::CallOf(named) => params = named,
            }
        }
        let found = self.hub.get(&params.name).filter(|_| request.toolset.contains(&params.name));
        let Some(tool) = found else {
            let thread = named_thread(context)?;
            let visible = Box::pin(self.tools.visible(request, thread.as_ref())).await?;
            return Err(ErrorData::invalid_params(visible.no_tool(&params.name), None));
        };
        let mut arguments = params.arguments.take().unwrap_or_default();
        let mut thread = named_thread(context)?;
        if thread.is_none() && takes_thread_argument(&tool) {
            thread = match take_thread_argument(&mut arguments) {
                Ok(thread) => thread,
                Err(problem) => {
                    return Ok(CallToolResponse::Complete(result::refused(ErrorKind::ArgumentsInvalid, problem)));
                }
            };
        }
        let accepted = accepted_kinds(&context.capabilities);
        let arguments = Value::Object(arguments);
        let mut call = ClientCall {
            is_minted: thread.is_none(),
            may_ask: self.forms.may_ask(request, &accepted) && approvals::shown(&arguments).is_some(),
            may_be_task: context.is_modern && context.capabilities.supports_tasks(),
            arguments,
            request,
            tool: &tool,
            context,
            thread,
            accepted,
            early_answers: Map::new(),
            own_approval: None,
        };
        let answers = params.input_responses.unwrap_or_default();
        match params.request_state {
            Some(state) if Sealer::is_token(&state) && !self.suspended.is_state(&state) => {
                let form = answers.get(FORM_KEY).cloned().unwrap_or_default();
                match Box::pin(self.decide_sealed(&state, &mut call, &form)).await? {
                    Decision::Decided => self.make(&mut call).await,
                    Decision::Undecided(reason) => Box::pin(self.make_without_form(&mut call, &reason)).await,
                    Decision::TooLate => Err(start_again("this call was decided before")),
                }
            }
            Some(state) => {
                let answers = answers.into_iter().collect();
                let progress = match Box::pin(self.resume(state, &call.resume_key(), answers, context)).await? {
                    Resumed::Here(running) => Box::pin(self.drive(running, &call)).await?,
                    Resumed::Elsewhere(Pause::Ended { outcome, missing }) => {
                        check_capabilities(&outcome, missing, context)?;
                        CallProgress::Ended(outcome)
                    }
                    Resumed::Elsewhere(Pause::InputRequired(result)) => {
                        CallProgress::Suspended(CallToolResponse::InputRequired(result))
                    }
                };
                match progress {
                    CallProgress::Ended(outcome) => call.result(&outcome),
                    CallProgress::Suspended(result) => Ok(result),
                }
            }
            None => {
                call.early_answers = answers.into_iter().collect();
                self.make(&mut call).await
            }
        }
    }

    /// Makes a call, and asks its caller to approve it if it must and may.
    async fn make(&self, call: &mut ClientCall<'_>) -> Result<CallToolResponse, ErrorData> {
        for round in 1.. {
            let outcome = match self.make_once(call).await? {
                CallProgress::Ended(outcome) => outcome,
                CallProgress::Suspended(result) => return Ok(result),
            };
            let Some(approval) = needs_approval(&outcome).filter(|_| call.may_ask && round <= MAX_FORMS) else {
                return call.result(&outcome);
            };
            if let Some(result) = Box::pin(self.ask_for_approval(approval, call, &outcome)).await? {
                return Ok(result);
            }
        }
        Err(cancelled())
    }

    /// Asks the user of a call to approve it. Returns the answer to the request, or nothing if the call is to be made again, which
    /// then uses the decision.
    async fn ask_for_approval(
        &self,
        approval: ApprovalId,
        call: &mut ClientCall<'_>,
        outcome: &Outcome,
    ) -> Result<Option<CallToolResponse>, ErrorData> {
        let found = self.hub.approval(&call.request.principal.tenant, approval).await.map_err(store_fault)?;
        let Some(approval) = found else { return call.result(outcome).map(Some) };
        if approval.state != ApprovalState::Pending {
            return Ok(None);
        }
        let Some(form) = self.forms.form(&approval, call.tool) else {
            return call.result(outcome).map(Some);
        };
        if call.context.is_modern {
            let state = self.forms.seal(&approval, &call.binding());
            let (requests, _) = to_result([(FORM_KEY.to_owned(), form)].into());
            return Ok(Some(CallToolResponse::InputRequired(InputRequiredResult::new(Some(requests), Some(state)))));
        }
        call.own_approval = Some(self.hub.reserve_approval(approval.id));
        let input = ClientInput { client: call.context.client.clone(), accepted: call.accepted.clone() };
        let time_left = approval.expires_at.since(self.hub.now());
        let answer = tokio::select! {
            answer = tokio::time::timeout(time_left, input.answer(form)) => answer.ok().flatten().unwrap_or_default(),
            () = self.stopping.cancelled() => return call.undecided(outcome, "The server is stopping.").map(Some),
            () = call.context.cancelled.cancelled() => {
                self.withdraw(call).await?;
                return Err(cancelled());
            }
        };
        match self.forms.decide(approval.id, &answer, call.request).await.map_err(store_fault)? {
            Decision::Decided => Ok(None),
            // A decision of another person does not overrule the refusal of this one.
            Decision::TooLate if !approvals::allows(&answer) => {
                call.undecided(outcome, "The user did not allow this call.").map(Some)
            }
            Decision::TooLate => Ok(None),
            Decision::Undecided(reason) => self.make_without_form(call, &reason).await.map(Some),
        }
    }

    /// Makes a call whose user has closed the form: the result links an approval that identical calls share.
    async fn make_without_form(&self, call: &mut ClientCall<'_>, reason: &str) -> Result<CallToolResponse, ErrorData> {
        self.withdraw(call).await?;
        call.may_ask = false;
        match self.make_once(call).await? {
            CallProgress::Ended(outcome) if needs_approval(&outcome).is_some() => call.undecided(&outcome, reason),
            // Decided elsewhere meanwhile.
            CallProgress::Ended(outcome) => call.result(&outcome),
            CallProgress::Suspended(result) => Ok(result),
        }
    }

    /// Withdraws the approval of a form that was closed.
    async fn withdraw(&self, call: &mut ClientCall<'_>) -> Result<(), ErrorData> {
        let Some(own) = call.own_approval.take() else { return Ok(()) };
        let withdrawn = self.hub.withdraw_approval(&call.request.principal.tenant, own.id()).await;
        withdrawn.map_err(store_fault)
    }

    async fn make_once(&self, call: &ClientCall<'_>) -> Result<CallProgress, ErrorData> {
        let context = call.context;
        let request = self.build(call)?;
        if call.may_be_task {
            return Box::pin(self.make_task(request, call)).await;
        }
        if context.is_modern && !call.accepted.is_empty() {
            // Not cancelled with the request, which ends when the call asks its caller.
            let running = InteractiveCall::start(request, call.accepted.clone(), self.hub.clock());
            return Box::pin(self.drive(running.answered_before(call.early_answers.clone()), call)).await;
        }
        let is_keyed = context.meta.contains_key(IDEMPOTENCY_META);
        let request = match &context.client {
            // The request is dropped with its connection, which cancels its call.
            ClientChannel::None => request,
            _ if is_keyed => request,
            _ => request.cancel_on(&context.cancelled),
        };
        let mut notifier = notifier(context);
        let missing = Arc::<MissingInput>::default();
        let input: Arc<dyn InputHandler> = match call.accepted.is_empty() {
            true => missing.clone(),
            false => Arc::new(ClientInput { client: context.client.clone(), accepted: call.accepted.clone() }),
        };
        let request = request.input(input);
        let outcome = match notifier.is_silent() {
            true => request.await,
            false => Box::pin(follow(request.start(), &mut notifier)).await,
        };
        check_capabilities(&outcome, missing.capabilities(), context)?;
        Ok(CallProgress::Ended(Box::new(outcome)))
    }

    /// Decides an approval by a form that was sent back with its state.
    async fn decide_sealed(&self, state: &str, call: &mut ClientCall<'_>, form: &Value) -> Result<Decision, ErrorData> {
        let opened = self.forms.open(state, &call.binding()).filter(|_| call.may_ask);
        let Some(sealed) = opened else {
            return Err(start_again("the state was changed, is too old, or belongs to another call"));
        };
        call.thread = sealed.thread;
        call.own_approval = Some(self.hub.reserve_approval(sealed.approval));
        self.forms.decide(sealed.approval, form, call.request).await.map_err(store_fault)
    }

    /// Follows a call until it ends, asks its caller, or becomes a task.
    async fn drive(&self, mut running: InteractiveCall, call: &ClientCall<'_>) -> Result<CallProgress, ErrorData> {
        let mut notifier = notifier(call.context);
        let mut updates = Box::pin(running.handle().updates());
        let may_be_task = call.may_be_task && running.is_detached();
        let mut takes_long = std::pin::pin!(tokio::time::sleep(self.task_after));
        loop {
            let step = tokio::select! {
                biased;
                Some(update) = updates.next() => {
                    notifier.notify(update).await;
                    continue;
                }
                step = running.next() => step,
                () = &mut takes_long, if may_be_task => return self.become_task(running, call).await,
                // Dropping the call cancels it, unless it has an idempotency key.
                () = call.context.cancelled.cancelled() => return Err(cancelled()),
            };
            let requests = match step {
                CallStep::Ended(outcome) => {
                    check_capabilities(&outcome, running.missing().capabilities(), call.context)?;
                    return Ok(CallProgress::Ended(outcome));
                }
                CallStep::InputRequired(requests) => requests,
            };
            let (requests, inexpressible) = to_result(requests);
            running.decline(&inexpressible);
            if requests.is_empty() {
                continue;
            }
            match suspend(&self.suspended, running, requests, call.resume_key()) {
                Ok(result) => return Ok(CallProgress::Suspended(CallToolResponse::InputRequired(result))),
                Err(declined) => running = *declined,
            }
        }
    }

    fn build<'a>(&'a self, call: &ClientCall<'_>) -> Result<CallRequest<'a>, ErrorData> {
        let (principal, meta) = (&call.request.principal, &call.context.meta);
        let request = self.hub.call(call.tool.definition.name.as_str(), call.arguments.clone());
        let mut request = request.tenant(principal.tenant.clone()).caller(principal.caller.clone());
        request = request.reuse_approvals(call.approval_reuse());
        if !call.may_be_task {
            request = request.no_wait();
        }
        if self.forms.mode == McpApproval::Deny {
            request = request.refuse_approval();
        }
        if let Some(thread) = &call.thread {
            request = request.thread(thread.as_str());
        }
        if let Some(trace) = meta.get_traceparent().and_then(|text| TraceContext::parse(text).ok()) {
            request = request.trace(trace);
        }
        match meta.get(IDEMPOTENCY_META) {
            None => Ok(request),
            Some(Value::String(key)) => Ok(request.idempotency_key(key.as_str())),
            Some(_) => Err(ErrorData::invalid_params(format!("`_meta.{IDEMPOTENCY_META}` is not a string"), None)),
        }
    }
}

/// The approval that a call needs.
fn needs_approval(outcome: &Outcome) -> Option<ApprovalId> {
    outcome.error.as_ref().filter(|error| error.kind == ErrorKind::ApprovalRequired).and_then(CallError::approval)
}

/// How far a call has come within one request.
enum CallProgress {
    Ended(Box<Outcome>),
    /// It goes on after the request: the answer to that.
    Suspended(CallToolResponse),
}

/// Refuses a call that failed because its client has not declared a capability. Only the modern era has a word for that.
pub(super) fn check_capabilities(
    outcome: &Outcome,
    missing: Option<ClientCapabilities>,
    context: &McpContext,
) -> Result<(), ErrorData> {
    match missing.filter(|_| outcome.error.is_some() && context.is_modern) {
        Some(required) => Err(ErrorData::missing_required_client_capability(required)),
        None => Ok(()),
    }
}

fn start_again(reason: &str) -> ErrorData {
    ErrorData::invalid_params(format!("{reason}; start again, without `requestState`"), None)
}

pub(super) fn cancelled() -> ErrorData {
    ErrorData::internal_error("the request was cancelled", None)
}

fn store_fault(error: StoreError) -> ErrorData {
    result::fault(&CallError::from(error))
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

#[allow(deprecated, reason = "log levels are deprecated, but clients still set them")]
fn notifier(context: &McpContext) -> UpdateNotifier {
    let level = if context.is_modern {
        context.meta.log_level()
    } else {
        context.request.session.as_ref().map(|session| session.log_level())
    };
    UpdateNotifier::new(context.client.clone(), context.meta.get_progress_token(), level)
}

//! Tasks: calls that their client looks up later.
//!
//! In: a call of a client that declared tasks. Out: its result if it ends soon, otherwise a task. A task is a detached call, found in the
//! journal by its id, so it goes on after a restart; only what its tool asks the client for is kept in memory, by the node that runs it.
//! `other_nodes.rs` asks that node.

mod other_nodes;

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use other_nodes::Questions;
pub(super) use other_nodes::answer_other_nodes;

use futures_util::FutureExt;
use rmcp::{
    ErrorData,
    model::{
        CallToolResponse, CreateTaskResult, DetailedTask, GetTaskResult, InputResponses, JsonObject, Task, TaskPayload,
        TaskStatus,
    },
};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio_util::sync::DropGuard;
use toolhub_core::{
    CallReceipt, CallRecord, CallRequest, InputKind, InputRequest, Status,
    clock::Timestamp,
    count_by_key::{CountByKey, is_full},
    ids::{ApprovalId, CallId, Tenant, ThreadId},
};

use super::{
    super::{
        approvals::{Decision, FORM_KEY},
        input::{accepted_kinds, to_result},
        interactive_calls::{CallStep, InteractiveCall},
        request::{McpContext, McpRequest},
        result,
    },
    CallProgress, Calls, ClientCall, IDEMPOTENCY_META, cancelled, check_capabilities, named_thread, store_fault,
};

/// How often a client should look a task up, in milliseconds.
const POLL_INTERVAL_MS: u64 = 1_000;
/// How many tasks may be asked for input; each tenant has a guaranteed share on top. Those of further ones are declined.
const MAX_INTERACTIVE_TASKS: usize = 1_000;

/// The tasks whose tools may ask their client.
#[derive(Default)]
pub(in crate::mcp) struct InteractiveTasks(Mutex<TaskTable>);

#[derive(Default)]
struct TaskTable {
    by_id: HashMap<CallId, (Tenant, InteractiveCall)>,
    by_tenant: CountByKey<Tenant>,
}

impl InteractiveTasks {
    fn keep(&self, id: CallId, tenant: &Tenant, call: InteractiveCall) {
        let mut table = self.lock();
        table.remove_ended();
        if !is_full(MAX_INTERACTIVE_TASKS, table.by_tenant.total(), table.by_tenant.of(tenant)) {
            table.by_tenant.add(tenant, 1);
            table.by_id.insert(id, (tenant.clone(), call));
        }
    }

    /// What the tool of a task asks for; `None` if this node does not run it.
    fn questions(&self, id: CallId, tenant: &Tenant) -> Option<Questions> {
        let mut table = self.lock();
        let (_, call) = table.by_id.get_mut(&id).filter(|(owner, _)| owner == tenant)?;
        match call.next().now_or_never() {
            // It has ended since its record was read.
            Some(CallStep::Ended(_)) => {
                table.remove(&id);
                Some(Questions::default())
            }
            Some(CallStep::InputRequired(requests)) => {
                let (requests, inexpressible) = to_result(requests);
                call.decline(&inexpressible);
                Some(Questions { requests, changed_at: call.changed_at() })
            }
            None => Some(Questions { changed_at: call.changed_at(), ..Questions::default() }),
        }
    }

    /// Gives a task the answers of its client. Returns whether this node runs it.
    fn answer(&self, id: CallId, tenant: &Tenant, answers: Map<String, Value>) -> bool {
        let mut table = self.lock();
        let found = table.by_id.get_mut(&id).filter(|(owner, _)| owner == tenant);
        found.map(|(_, call)| call.answer(answers)).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, TaskTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TaskTable {
    fn remove(&mut self, id: &CallId) {
        if let Some((tenant, _)) = self.by_id.remove(id) {
            self.by_tenant.subtract(&tenant, 1);
        }
    }

    fn remove_ended(&mut self) {
        let Self { by_id, by_tenant } = self;
        by_id.retain(|_, (tenant, call)| {
            let has_ended = matches!(call.next().now_or_never(), Some(CallStep::Ended(_)));
            if has_ended {
                by_tenant.subtract(tenant, 1);
            }
            !has_ended
        });
    }
}

/// Why answers to a task are refused.
const NOT_TAKEN: &str = "the node that ran the task is gone, or was started again, and takes no answers to it: look the task up, which may \
    end as `interrupted`, or cancel it and start again";

impl Calls {
    /// Makes a call that becomes a task if it takes long or waits for a person.
    pub(super) async fn make_task(
        &self,
        request: CallRequest<'_>,
        call: &ClientCall<'_>,
    ) -> Result<CallProgress, ErrorData> {
        let is_keyed = call.context.meta.contains_key(IDEMPOTENCY_META);
        let running = InteractiveCall::start_detached(request, call.accepted.clone(), self.hub.clock(), is_keyed);
        let mut running = running.answered_before(call.early_answers.clone());
        let receipt = tokio::select! {
            receipt = running.accepted() => receipt,
            () = call.context.cancelled.cancelled() => return Err(cancelled()),
        };
        match receipt {
            CallReceipt::Ended(outcome) => {
                check_capabilities(&outcome, running.missing().capabilities(), call.context)?;
                Ok(CallProgress::Ended(Box::new(outcome)))
            }
            CallReceipt::AwaitingApproval { .. } => self.become_task(running, call).await,
            _ => self.drive(running, call).await,
        }
    }

    /// Makes a running call a task.
    pub(super) async fn become_task(
        &self,
        mut running: InteractiveCall,
        call: &ClientCall<'_>,
    ) -> Result<CallProgress, ErrorData> {
        // Until its client knows the task, the end of the request cancels it.
        let (id, guard) = (running.handle().id(), running.release());
        let record = self.task_record(id, call.request).await?;
        self.tasks.keep(id, &call.request.principal.tenant, running);
        let described = self.describe(&record, call.context, call.is_minted).await?;
        let mut created = CreateTaskResult::new(described.task.task);
        created.meta = described.meta;
        guard.map(DropGuard::disarm);
        Ok(CallProgress::Suspended(CallToolResponse::Task(created)))
    }

    /// The current state of a task.
    pub(in crate::mcp) async fn get_task(&self, id: &str, context: &McpContext) -> Result<GetTaskResult, ErrorData> {
        let request = &*context.request;
        let record = self.task_record(parse_id(id)?, request).await?;
        let is_named = named_thread(context)?.is_some();
        let is_minted = !is_named && record.thread.as_ref().is_some_and(ThreadId::looks_minted);
        self.describe(&record, context, is_minted).await
    }

    /// Takes the answers to what a task asked for.
    pub(in crate::mcp) async fn update_task(
        &self,
        id: &str,
        mut answers: InputResponses,
        context: &McpContext,
    ) -> Result<(), ErrorData> {
        let request = &*context.request;
        let record = self.task_record(parse_id(id)?, request).await?;
        let accepted = accepted_kinds(&context.capabilities);
        if let Some(form) = answers.remove(FORM_KEY)
            && self.approval_form_of(&record, request, &accepted).await?.is_some()
            && let Some(approval) = awaited_approval(&record)
        {
            let decision = self.forms.decide(approval, &form, request).await.map_err(store_fault)?;
            if let Decision::Undecided(reason) = decision {
                return Err(ErrorData::invalid_params(reason, None));
            }
        }
        if answers.is_empty() || record.outcome.is_some() {
            return Ok(());
        }
        let (tenant, answers) = (&request.principal.tenant, Map::from_iter(answers));
        if self.tasks.answer(record.id, tenant, answers.clone())
            || self.answer_elsewhere(&record, answers, context).await?
        {
            return Ok(());
        }
        match self.task_record(record.id, request).await?.outcome {
            Some(_) => Ok(()),
            None => Err(ErrorData::invalid_params(NOT_TAKEN, None)),
        }
    }

    /// Cancels a task.
    pub(in crate::mcp) async fn cancel_task(&self, id: &str, context: &McpContext) -> Result<(), ErrorData> {
        let request = &*context.request;
        let record = self.task_record(parse_id(id)?, request).await?;
        self.hub.cancel_call(&request.principal.tenant, record.id).await.map_err(store_fault)?;
        Ok(())
    }

    /// The call of a task, if this caller made it.
    async fn task_record(&self, id: CallId, request: &McpRequest) -> Result<CallRecord, ErrorData> {
        let principal = &request.principal;
        let record = self.hub.call_record(&principal.tenant, id).await.map_err(store_fault)?;
        record.filter(|record| record.caller == principal.caller).ok_or_else(unknown_task)
    }

    /// The state of a task. `is_minted`: its client named no thread.
    async fn describe(
        &self,
        record: &CallRecord,
        context: &McpContext,
        is_minted: bool,
    ) -> Result<GetTaskResult, ErrorData> {
        let request = &*context.request;
        let created_at = record.opened_at.to_string();
        let mut task = Task::new(record.id.to_string(), TaskStatus::Working, created_at.clone(), created_at);
        task.ttl_ms = u64::try_from(self.hub.call_retention().as_millis()).ok();
        task.poll_interval_ms = Some(POLL_INTERVAL_MS);
        let mut asked_at = None;
        let payload = match &record.outcome {
            Some(outcome) if outcome.status == Status::Cancelled => TaskPayload::Cancelled,
            Some(outcome) => {
                self.tasks.lock().remove(&record.id);
                let tool = self.hub.get(&record.tool);
                match result::of(outcome, tool.as_deref(), request, is_minted) {
                    Ok(result) => TaskPayload::Completed { result: object(&result) },
                    Err(error) => TaskPayload::Failed { error: object(&error) },
                }
            }
            None => {
                if let Some(id) = awaited_approval(record) {
                    task.status_message = Some(format!("The call waits for the approval of a person (approval {id})."));
                }
                let (payload, changed_at) = self.open_payload(record, context).await?;
                asked_at = changed_at;
                payload
            }
        };
        task.last_updated_at = self.last_change(record, asked_at, request).await?.to_string();
        let mut described = GetTaskResult::new(DetailedTask::new(task, payload));
        let minted = record.thread.as_ref().filter(|_| is_minted);
        described.meta = result::task_meta(awaited_approval(record), minted, request);
        Ok(described)
    }

    /// When the status of a task changed last: it ended, its approval was requested or decided, or its tool asked or was answered.
    async fn last_change(
        &self,
        record: &CallRecord,
        asked_at: Option<Timestamp>,
        request: &McpRequest,
    ) -> Result<Timestamp, ErrorData> {
        let ended = record.outcome.as_ref().map(|outcome| record.opened_at + outcome.duration);
        let approval = match record.approval {
            Some(id) => self.hub.approval(&request.principal.tenant, id).await.map_err(store_fault)?,
            None => None,
        };
        let decided = approval.map(|approval| approval.answer.map_or(approval.asked_at, |answer| answer.at));
        Ok([decided, asked_at, ended].into_iter().flatten().fold(record.opened_at, Ord::max))
    }

    /// The form about the approval that a task waits for, if its caller may decide it.
    async fn approval_form_of(
        &self,
        record: &CallRecord,
        request: &McpRequest,
        accepted: &[InputKind],
    ) -> Result<Option<InputRequest>, ErrorData> {
        let awaited = awaited_approval(record).filter(|_| self.forms.may_ask(request, accepted));
        let (Some(id), Some(tool)) = (awaited, self.hub.get(&record.tool)) else { return Ok(None) };
        let approval = self.hub.approval(&request.principal.tenant, id).await.map_err(store_fault)?;
        Ok(approval.and_then(|approval| self.forms.form(&approval, &tool)))
    }

    /// What a task that has not ended waits for, and when its tool last asked or was answered.
    async fn open_payload(
        &self,
        record: &CallRecord,
        context: &McpContext,
    ) -> Result<(TaskPayload, Option<Timestamp>), ErrorData> {
        let accepted = accepted_kinds(&context.capabilities);
        let form = self.approval_form_of(record, &context.request, &accepted).await?;
        let questions = match self.tasks.questions(record.id, &context.request.principal.tenant) {
            Some(questions) => questions,
            // A client that cannot answer has not been asked.
            None if form.is_some() || accepted.is_empty() => Questions::default(),
            None => self.questions_elsewhere(record, context).await?,
        };
        let Questions { requests: mut input_requests, changed_at } = questions;
        if let Some(form) = form {
            (input_requests, _) = to_result([(FORM_KEY.to_owned(), form)].into());
        }
        let payload = match input_requests.is_empty() {
            true => TaskPayload::Working,
            false => TaskPayload::InputRequired { input_requests },
        };
        Ok((payload, changed_at))
    }
}

/// The approval that the call of a task waits for.
fn awaited_approval(record: &CallRecord) -> Option<ApprovalId> {
    record.approval.filter(|_| record.status == Status::AwaitingApproval)
}

fn parse_id(id: &str) -> Result<CallId, ErrorData> {
    id.parse().map_err(|_| unknown_task())
}

/// The same for a task that never existed, that is too old, and that another caller owns.
fn unknown_task() -> ErrorData {
    ErrorData::invalid_params("there is no such task, or it is too old", None)
}

fn object(value: &impl Serialize) -> JsonObject {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        _ => JsonObject::new(),
    }
}

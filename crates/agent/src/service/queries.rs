//! Runs and conversations, for whoever looks: as they stand, and all of one thread at once.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use toolhub_core::{
    CallQuery, CallQueryError, CallRecord, CancellationToken, StateError, Status, ThreadError, ThreadInfo,
    backend::StoreError,
    ids::{RunId, Tenant, ThreadId, ThreadKey},
};

use super::{AgentService, CONTENTION_DELAY, Inner};
use crate::{
    message::Message,
    record::{RunRecord, RunStatus},
    run_store::KeptMessage,
};

/// What became of the wish to cancel a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunCancellation {
    /// It was asked to stop, and will end soon.
    Requested,
    /// It had ended before, like this.
    Ended(RunStatus),
    /// The tenant has no such run.
    NotFound,
}

/// Everything that is kept of a thread.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ThreadExport {
    /// The thread.
    pub thread: Option<ThreadInfo>,
    /// Its conversation, the oldest message first.
    pub messages: Vec<KeptMessage>,
    /// Its runs, the newest first; what is secret in the arguments of calls that are done outside is masked.
    pub runs: Vec<RunRecord>,
    /// Its calls, the newest first; what is secret in their arguments is masked.
    pub calls: Vec<CallRecord>,
    /// How its tools stand, and which have succeeded.
    pub tool_states: Value,
    /// What its tools remember, one object for each context.
    pub states: Vec<Value>,
}

impl AgentService {
    /// A run as it stands.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunRecord>, StoreError> {
        let Inner { hub, run_store, active_runs, .. } = &*self.0;
        let here = active_runs.find(tenant, run).map(|driven| driven.record_rx.borrow().clone());
        let record = match here {
            Some(record) => Some(record),
            None => run_store.run(tenant, run, hub.now()).await?,
        };
        match record {
            Some(record) => self.refresh_calls(tenant, record).await.map(Some),
            None => Ok(None),
        }
    }

    /// The run that is open in a thread, whoever drives it.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn open_run(&self, tenant: &Tenant, thread: &ThreadId) -> Result<Option<RunId>, StoreError> {
        let thread_key = ThreadKey::new(tenant, thread);
        if let Some(driven) = self.0.active_runs.get(&thread_key) {
            return Ok(Some(driven.run));
        }
        let held = self.0.run_store.checkout(&thread_key, self.0.hub.now()).await?;
        Ok(held.map(|held| held.open_run.run.id))
    }

    /// The runs of a thread, the newest first: at most `limit`, those before `before`.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn runs(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        limit: usize,
        before: Option<RunId>,
    ) -> Result<Vec<RunRecord>, StoreError> {
        let thread_key = ThreadKey::new(tenant, thread);
        let mut runs = Vec::new();
        for record in self.0.run_store.runs(&thread_key, limit, before, self.0.hub.now()).await? {
            runs.push(self.refresh_calls(tenant, record).await?);
        }
        Ok(runs)
    }

    /// Asks a run to stop. It still has an end: cancelled, or what it was if that was faster. Its calls are cancelled too.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn cancel(&self, tenant: &Tenant, run: RunId) -> Result<RunCancellation, StoreError> {
        let Inner { hub, run_store, active_runs, .. } = &*self.0;
        loop {
            if let Some(driven) = active_runs.find(tenant, run) {
                driven.cancel.cancel();
                return Ok(RunCancellation::Requested);
            }
            let Some(record) = run_store.run(tenant, run, hub.now()).await? else {
                return Ok(RunCancellation::NotFound);
            };
            if record.status.is_end() {
                return Ok(RunCancellation::Ended(record.status));
            }
            let thread_key = ThreadKey { tenant: tenant.clone(), thread: record.thread };
            if let Some(place) = active_runs.try_acquire(&thread_key) {
                // Nobody drives it: whoever does now brings it to a clean end.
                let cancel = CancellationToken::new();
                cancel.cancel();
                self.resume_open_run(place, &thread_key, cancel).await?;
                return Ok(RunCancellation::Requested);
            }
            if active_runs.get(&thread_key).is_some_and(|driven| driven.run != run) {
                return Ok(RunCancellation::Requested);
            }
            // Whoever has the place is only just beginning, or has only just ended.
            tokio::time::sleep(CONTENTION_DELAY).await;
        }
    }

    /// Messages of a conversation, the oldest first: at most `limit`, those after the number `after`. What is secret in the arguments of
    /// calls is masked; the model is told all of it.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn messages(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        limit: usize,
        after: Option<u64>,
    ) -> Result<Vec<KeptMessage>, StoreError> {
        let thread_key = ThreadKey::new(tenant, thread);
        let mut messages = self.0.run_store.messages(&thread_key, limit, after, self.0.hub.now()).await?;
        for kept in &mut messages {
            if let Message::Assistant { calls, .. } = &mut kept.message {
                for call in calls {
                    self.0.hub.redact(&mut call.arguments);
                    // That is between the model and its server.
                    call.extra = None;
                }
            }
        }
        Ok(messages)
    }

    /// Takes a thread away at once, with everything that is kept of it, and ends the run that is open in it. Says whether there was
    /// one.
    ///
    /// # Errors
    /// When calls run in it, or the store does not answer.
    pub async fn delete_thread(&self, tenant: &Tenant, thread: &ThreadId) -> Result<bool, ThreadError> {
        let Inner { hub, active_runs, .. } = &*self.0;
        let deleted = hub.delete_thread(tenant, thread).await?;
        // Its run would notice only when its model has answered.
        if let Some(driven) = active_runs.get(&ThreadKey::new(tenant, thread)) {
            driven.cancel.cancel();
        }
        Ok(deleted)
    }

    /// Everything that is kept of a thread, for whom it belongs to. [`delete_thread`](Self::delete_thread) takes the same away.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn export(&self, tenant: &Tenant, thread: &ThreadId) -> Result<ThreadExport, StoreError> {
        const PAGE: usize = 500;
        let hub = &self.0.hub;
        let mut messages = Vec::new();
        loop {
            let page = self.messages(tenant, thread, PAGE, messages.last().map(|last: &KeptMessage| last.seq)).await?;
            let more = page.len() == PAGE;
            messages.extend(page);
            if !more {
                break;
            }
        }
        let mut runs = Vec::new();
        loop {
            let page = self.runs(tenant, thread, PAGE, runs.last().map(|last: &RunRecord| last.id)).await?;
            let more = page.len() == PAGE;
            runs.extend(page);
            if !more {
                break;
            }
        }
        let mut calls = Vec::new();
        let mut query = CallQuery { thread: Some(thread.clone()), limit: PAGE, ..CallQuery::default() };
        loop {
            let page = hub.calls(tenant, &query).await.map_err(|error| match error {
                CallQueryError::Store(error) => error,
                other => StoreError::Unavailable(other.to_string()),
            })?;
            calls.extend(page.calls);
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => break,
            }
        }
        let handed_out = runs.iter_mut().flat_map(|run| &mut run.calls).filter_map(|call| call.arguments.as_mut());
        handed_out.for_each(|arguments| hub.redact(arguments));
        let tool_states = hub.serialize_tool_states(tenant, thread).await;
        let tool_states = tool_states.map_err(|error| StoreError::Unavailable(error.operator))?;
        let states = hub.state().export(tenant, Some(thread)).await.map_err(|error| match error {
            StateError::Store(error) => error,
            other => StoreError::Unavailable(other.to_string()),
        })?;
        let json = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
        let thread = hub.thread(tenant, thread).await?;
        let (tool_states, states) = (json(&tool_states), states.lines().map(json).collect());
        Ok(ThreadExport { thread, messages, runs, calls, tool_states, states })
    }

    /// A record with its calls as they stand now: whether they wait is known by nobody else.
    async fn refresh_calls(&self, tenant: &Tenant, mut record: RunRecord) -> Result<RunRecord, StoreError> {
        if record.status.is_end() {
            return Ok(record);
        }
        let mut waits = false;
        for call in record.calls.iter_mut().filter(|call| !call.status.is_terminal()) {
            if let Some(now) = self.0.hub.call_record(tenant, call.id).await? {
                (call.status, call.approval) = (now.status, now.approval.filter(|_| !now.status.is_terminal()));
            }
            call.arguments = self.0.hub.external_arguments(tenant, call.id);
            waits |= call.status == Status::AwaitingApproval || call.arguments.is_some();
        }
        record.status = if waits { RunStatus::Waiting } else { RunStatus::Running };
        Ok(record)
    }
}

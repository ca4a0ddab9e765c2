//! The front door's questions and orders about the status of tools.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::ToolHub;
use crate::{
    execution::Tool,
    registry::ToolFilter,
    statuses::{ProbeGuard, StatusKey, Verdict},
};
use toolhub_storage::backend::{Batch, Partition, StoreError};
use toolhub_types::{
    error::{CallError, Detail, ErrorKind, ToolError},
    event_kind::EventKind,
    ids::{Tenant, ThreadId},
    language::Language,
    status::{Disabled, StatusEvent, ToolStatus},
    timestamp::Timestamp,
    tool::ToolName,
};

/// Whose view of a tool is meant.
#[derive(Debug, Clone, Copy)]
pub enum StatusScope<'a> {
    /// What all threads share.
    Shared,
    /// What one thread sees: the worse of its own record and the shared one.
    Thread(&'a Tenant, &'a ThreadId),
}

/// The status of a tool, and the facts behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolStatusInfo {
    /// The tool.
    pub tool_name: ToolName,
    /// The word.
    pub status: ToolStatus,
    /// Why.
    pub reason: String,
    /// When anything about it last changed; absent for a tool that never made trouble.
    pub last_updated: Option<Timestamp>,
    /// How many failures in a row count against it.
    pub consecutive_failures: u32,
    /// When it last succeeded: in a thread's view in that thread, or for everybody where a success ended a failure.
    /// Plain successes are looked up in the journal after a restart, as far back as is worth it.
    pub last_success_time: Option<Timestamp>,
    /// When it last failed in a way that counts.
    pub last_failure_time: Option<Timestamp>,
    /// Whether a list that somebody holds for the thread should be bound again because of it.
    pub should_rebind: bool,
}

impl ToolHub {
    /// The status of a tool. In a thread, a tool whose time has not come is `unavailable`, and the reason names what it
    /// waits for.
    ///
    /// # Errors
    /// When nobody knows the tool, or the store does not answer.
    pub async fn tool_status(&self, tool: &str, view: StatusScope<'_>) -> Result<ToolStatusInfo, CallError> {
        let tool = self.require_tool(tool)?;
        self.load_past_successes(view).await;
        Ok(self.snapshot_tool(tool, view).await?.info())
    }

    /// The status of every tool, by name.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn tool_statuses(&self, view: StatusScope<'_>) -> Result<Vec<ToolStatusInfo>, CallError> {
        self.tool_statuses_in(view, Language::English).await
    }

    /// The status of every tool, by name, with reasons in this language.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn tool_statuses_in(
        &self,
        view: StatusScope<'_>,
        language: Language,
    ) -> Result<Vec<ToolStatusInfo>, CallError> {
        self.load_past_successes(view).await;
        let seen = self.snapshot_tools(self.list(&ToolFilter::default()), view).await?;
        Ok(seen.iter().map(|seen| seen.info_with_language(language)).collect())
    }

    /// Says by hand what a tool's status is. `Maintenance` and `Unavailable` hold until they are lifted, reset, or `until`
    /// has come; `Failed` opens the breaker, as if the tool had failed, until then or for the usual wait; `Available` lifts
    /// an override and closes the breaker. Answers what holds now: a shared word may still stand above a thread's.
    ///
    /// # Errors
    /// When nobody knows the tool, or the store does not answer.
    pub async fn set_tool_status(
        &self,
        tool: &str,
        status: ToolStatus,
        reason: Option<String>,
        until: Option<Timestamp>,
        view: StatusScope<'_>,
    ) -> Result<ToolStatusInfo, CallError> {
        let tool = self.require_tool(tool)?;
        let event = StatusEvent::from_operator(status, reason, until);
        self.engine.statuses.apply(&status_key(&tool, view), &event).await?;
        Ok(self.snapshot_tool(tool, view).await?.info())
    }

    /// Disables a tool for everybody, until it is enabled again, or enables it. Nothing else about it changes: what an operator
    /// said, what it failed at, and whether its [owner](crate::ToolBuilder::disabled) has switched it off. Kept over restarts.
    /// Answers what holds now.
    ///
    /// # Errors
    /// When nobody knows the tool, or the store does not answer.
    pub async fn set_tool_enabled(
        &self,
        tool: &str,
        enabled: bool,
        reason: Option<String>,
    ) -> Result<ToolStatusInfo, CallError> {
        let tool = self.require_tool(tool)?;
        let event = if enabled { StatusEvent::Enabled } else { StatusEvent::Disabled(Disabled { reason }) };
        self.engine.statuses.apply(&status_key(&tool, StatusScope::Shared), &event).await?;
        Ok(self.snapshot_tool(tool, StatusScope::Shared).await?.info())
    }

    /// Forgets the record of a tool. A thread's reset clears its own record and lets a shared breaker be tried
    /// again; it lifts no shared override and takes no evidence away.
    ///
    /// # Errors
    /// When nobody knows the tool, or the store does not answer.
    pub async fn reset_tool_status(&self, tool: &str, view: StatusScope<'_>) -> Result<ToolStatusInfo, CallError> {
        let tool = self.require_tool(tool)?;
        let statuses = &self.engine.statuses;
        let whose = status_key(&tool, view);
        // What is forgotten must not be brought back by the next who asks.
        self.load_past_successes(view).await;
        statuses.apply(&whose, &StatusEvent::Reset).await?;
        match view {
            StatusScope::Shared => tool.runtime.last_success.forget(),
            StatusScope::Thread(..) => statuses.successes.forget(&whose),
        }
        if matches!(view, StatusScope::Thread(..)) {
            statuses.apply(&StatusKey::shared(&tool.definition.name), &StatusEvent::CoolDownEnded).await?;
        }
        Ok(self.snapshot_tool(tool, view).await?.info())
    }

    /// Forgets that a tool has succeeded in a thread, so that whatever waits for it waits again; says whether it had. A
    /// reset of its status does not do that.
    ///
    /// # Errors
    /// When nobody knows the tool, or the store does not answer.
    pub async fn reset_tool_evidence(&self, tool: &str, tenant: &Tenant, thread: &ThreadId) -> Result<bool, CallError> {
        let tool = self.require_tool(tool)?;
        let journal = &self.engine.journal;
        loop {
            let now = self.now();
            let (mut evidence, seen) = journal.evidence(tenant, thread, now).await?;
            if !evidence.forget(&tool.definition.name) {
                return Ok(false);
            }
            let batch = Batch::new(Partition::for_thread(tenant.clone(), thread.clone()));
            match journal.store.commit(batch.with(journal.put_evidence(&evidence, seen)?), now).await {
                // A call left evidence at the same moment; look again.
                Err(StoreError::Conflict { .. }) => {}
                end => {
                    self.engine.services.availability_changed.notify_one();
                    return Ok(end.map(|_| true)?);
                }
            }
        }
    }

    /// Tells how an execution went that somebody else made. It counts like one made here.
    ///
    /// # Errors
    /// When nobody knows the tool, or the store does not answer.
    pub async fn report_result(
        &self,
        tool: &str,
        view: StatusScope<'_>,
        result: Result<(), ToolError>,
    ) -> Result<ToolStatusInfo, CallError> {
        let known = self.require_tool(tool)?;
        let statuses = &self.engine.statuses;
        let thread = match view {
            StatusScope::Shared => None,
            StatusScope::Thread(tenant, thread) => Some((tenant, thread)),
        };
        let verdict = Verdict::from_result(&result, statuses);
        ProbeGuard::for_external_result(statuses, &known.definition.name, thread).report(verdict).await?;
        if result.is_ok() {
            known.runtime.last_success.note(self.now());
            if thread.is_some() {
                statuses.successes.note(status_key(&known, view), self.now());
            }
        }
        let tool_name = known.definition.name.clone();
        let news = match result {
            Ok(()) => EventKind::ToolExecuted { tool_name },
            Err(error) => {
                let (counts, message) = (error.counts(), error.to_string());
                EventKind::ToolFailed { tool_name, error: error.kind(), counts, message }
            }
        };
        match thread {
            None => self.emit(news),
            Some((tenant, thread)) => {
                self.engine.services.events.emit_for_tenant(self.now(), tenant, Some(thread), news);
            }
        }
        Ok(self.snapshot_tool(known, view).await?.info())
    }

    pub(super) fn require_tool(&self, name: &str) -> Result<Arc<Tool>, CallError> {
        self.get(name).ok_or_else(|| self.tool_not_found(name))
    }

    pub(super) fn tool_not_found(&self, name: &str) -> CallError {
        CallError::new(ErrorKind::ToolNotFound)
            .operator(format!("no tool is named `{name}`"))
            .detail(Detail::Suggestions(self.tools().suggest(name)))
    }
}

fn status_key(tool: &Tool, view: StatusScope<'_>) -> StatusKey {
    let name = &tool.definition.name;
    match view {
        StatusScope::Shared => StatusKey::shared(name),
        StatusScope::Thread(tenant, thread) => StatusKey::thread(name, tenant, thread),
    }
}

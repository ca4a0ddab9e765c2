//! Public API of tool statuses: read, override, enable, reset, report.
//!
//! In: a tool, a scope and perhaps an order of an operator. Out: the tool's effective status. `statuses` stores the facts.

use std::{collections::HashMap, sync::Arc};

use schemars::JsonSchema;
use serde::Serialize;

use super::{ToolHub, offer::OfferOptions};
use crate::{
    evidence,
    execution::{EvidenceDemand, Tool},
    statuses::{HealthVerdict, ProbeGuard, StatusKey},
};
use toolhub_storage::backend::StoreError;
use toolhub_types::{
    error::{CallError, Detail, ErrorKind, ToolError},
    event_kind::EventKind,
    ids::{Tenant, ThreadId},
    status::{Disabled, Evidence, Language, StatusEvent, ToolStatus},
    timestamp::Timestamp,
    tool::ToolName,
};

/// The scope in which a tool's status is read or changed.
#[derive(Debug, Clone, Copy)]
pub enum StatusScope<'a> {
    /// The record that all threads share.
    Shared,
    /// One thread: the worse of its own record and the shared one.
    Thread(&'a Tenant, &'a ThreadId),
}

/// The status of a tool, and the facts behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolStatusInfo {
    /// The tool.
    pub tool_name: ToolName,
    /// The status.
    pub status: ToolStatus,
    /// Why it has that status.
    pub reason: String,
    /// When the status, or what is known about it, last changed: by a result, an operator, a dependency or with time. If it never
    /// did: when the thread was created or, in the shared scope, the hub was built.
    pub last_updated: Timestamp,
    /// Consecutive failures that count against it.
    pub consecutive_failures: u32,
    /// When it last succeeded: in a thread's scope in that thread, or in any thread where a success ended a shared failure.
    /// After a restart, the most recent successes are read from the journal.
    pub last_success_time: Option<Timestamp>,
    /// When its last counted failure was.
    pub last_failure_time: Option<Timestamp>,
    /// Whether an offer held for the thread is out of date because of this tool.
    pub should_rebind: bool,
    /// Whether results count on this node only, because the store does not answer. They are applied to the record of all nodes afterwards.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub local: bool,
}

impl ToolHub {
    /// The status of a tool. In a thread, a tool whose dependencies are not met is `unavailable`, and the reason names them.
    ///
    /// # Errors
    /// When the tool is not registered, or the store does not answer.
    pub async fn tool_status(&self, tool: &str, scope: StatusScope<'_>) -> Result<ToolStatusInfo, CallError> {
        self.tool_status_with(tool, scope, Language::English).await
    }

    /// The status of a tool, with the reason in a language.
    ///
    /// # Errors
    /// When the tool is not registered, or the store does not answer.
    pub async fn tool_status_with(
        &self,
        tool: &str,
        scope: StatusScope<'_>,
        language: Language,
    ) -> Result<ToolStatusInfo, CallError> {
        self.status_info(self.require_tool(tool)?, scope, language).await
    }

    /// The statuses of all tools, sorted by name.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn tool_statuses(&self, scope: StatusScope<'_>) -> Result<Vec<ToolStatusInfo>, CallError> {
        self.tool_statuses_with(scope, &OfferOptions::default()).await
    }

    /// The statuses of the tools of a toolset, sorted by name, with reasons in a language.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn tool_statuses_with(
        &self,
        scope: StatusScope<'_>,
        OfferOptions { toolset, language }: &OfferOptions,
    ) -> Result<Vec<ToolStatusInfo>, CallError> {
        self.status_infos(self.list_toolset(toolset), scope, *language).await
    }

    /// The number of a tenant's threads in which a tool is withheld because of what happened there, by tool. Tools that no
    /// thread withholds are absent.
    #[must_use]
    pub fn withheld_threads(&self, tenant: &Tenant) -> HashMap<ToolName, usize> {
        self.engine.statuses.withheld_threads(tenant)
    }

    /// The first of a tenant's threads, by id, in which a tool is withheld because of what happened there; at most `limit`.
    #[must_use]
    pub fn threads_withholding(&self, tool: &ToolName, tenant: &Tenant, limit: usize) -> Vec<ThreadId> {
        self.engine.statuses.threads_withholding(tool, tenant, limit)
    }

    /// Sets a tool's status as an operator. `Maintenance` and `Unavailable` are overrides that hold until they are lifted or
    /// reset, or until `until`; `Failed` opens the breaker until then, or for the configured duration; `Available` lifts the
    /// override and closes the breaker. Returns the effective status: a shared one may still outweigh a thread's.
    ///
    /// # Errors
    /// When the tool is not registered, or the store does not answer.
    pub async fn set_tool_status(
        &self,
        tool: &str,
        status: ToolStatus,
        reason: Option<String>,
        until: Option<Timestamp>,
        scope: StatusScope<'_>,
    ) -> Result<ToolStatusInfo, CallError> {
        let tool = self.require_tool(tool)?;
        let event = StatusEvent::from_operator(status, reason, until);
        self.ensure_thread(scope).await?;
        self.engine.statuses.apply(&status_key(&tool, scope), &event).await?;
        self.status_info(tool, scope, Language::English).await
    }

    /// Disables a tool for all threads until it is [enabled](Self::enable_tool). Overrides and failures stay recorded. Survives
    /// restarts. Returns the effective status.
    ///
    /// # Errors
    /// When the tool is not registered, or the store does not answer.
    pub async fn disable_tool(&self, tool: &str, reason: Option<String>) -> Result<ToolStatusInfo, CallError> {
        self.apply_shared_event(tool, &StatusEvent::Disabled(Disabled { reason })).await
    }

    /// Enables a tool that was [disabled](Self::disable_tool). Lifts no override, and not the
    /// [`disabled`](crate::ToolBuilder::disabled) of its definition. Returns the effective status.
    ///
    /// # Errors
    /// When the tool is not registered, or the store does not answer.
    pub async fn enable_tool(&self, tool: &str) -> Result<ToolStatusInfo, CallError> {
        self.apply_shared_event(tool, &StatusEvent::Enabled).await
    }

    /// Clears the status record of a tool. A thread's reset clears its own record and puts an open shared breaker on
    /// probation; it lifts no shared override and removes no evidence.
    ///
    /// # Errors
    /// When the tool is not registered, or the store does not answer.
    pub async fn reset_tool_status(&self, tool: &str, scope: StatusScope<'_>) -> Result<ToolStatusInfo, CallError> {
        let tool = self.require_tool(tool)?;
        let statuses = &self.engine.statuses;
        let key = status_key(&tool, scope);
        self.ensure_thread(scope).await?;
        statuses.apply(&key, &StatusEvent::Reset).await?;
        match scope {
            StatusScope::Shared => tool.runtime.last_success.forget(),
            StatusScope::Thread(..) => {
                statuses.successes.mark_reset(&key);
                statuses.apply(&StatusKey::shared(&tool.definition.name), &StatusEvent::CoolDownEnded).await?;
            }
        }
        self.status_info(tool, scope, Language::English).await
    }

    /// Removes the evidence that a tool has succeeded in a thread, so that its dependents wait for it again; returns whether
    /// there was any. A reset of its status does not do that.
    ///
    /// # Errors
    /// When the tool is not registered, or the store does not answer.
    pub async fn reset_tool_evidence(&self, tool: &str, tenant: &Tenant, thread: &ThreadId) -> Result<bool, CallError> {
        let tool = self.require_tool(tool)?;
        let name = &tool.definition.name;
        evidence::recall_thread(&self.engine, tenant, thread).await;
        let has_succeeded = self.engine.statuses.successes.get(&StatusKey::thread(name, tenant, thread)).is_some();
        let mut found = false;
        let reset = |evidence: &mut Evidence, now| {
            found = evidence.get(name).is_some();
            // Also a success that no tool depends on yet must not count later.
            if found || has_succeeded {
                evidence.reset(name, now);
            }
        };
        evidence::update(&self.engine, tenant, thread, reset).await?;
        Ok(found)
    }

    /// Reports the result of an execution outside the hub. It counts like one made here: for the status and, in a thread, as
    /// evidence for the tools that depend on it.
    ///
    /// # Errors
    /// When the tool is not registered, or the store does not answer.
    pub async fn report_result(
        &self,
        tool: &str,
        scope: StatusScope<'_>,
        result: Result<(), ToolError>,
    ) -> Result<ToolStatusInfo, CallError> {
        let tool = self.require_tool(tool)?;
        let statuses = &self.engine.statuses;
        let thread = match scope {
            StatusScope::Shared => None,
            StatusScope::Thread(tenant, thread) => Some((tenant, thread)),
        };
        self.ensure_thread(scope).await?;
        let verdict = HealthVerdict::from_result(&result, statuses);
        ProbeGuard::for_external_result(statuses, &tool.definition.name, thread).report(verdict).await?;
        if result.is_ok() {
            tool.runtime.last_success.note(self.now());
            if let Some((tenant, thread)) = thread {
                statuses.successes.note(status_key(&tool, scope), self.now());
                self.add_evidence(&tool, tenant, thread).await?;
            }
        }
        let tool_name = tool.definition.name.clone();
        let event = match result {
            Ok(()) => EventKind::ToolExecuted { tool_name },
            Err(error) => {
                let (counts, message) = (error.counts(), error.to_string());
                EventKind::ToolFailed { tool_name, error: error.kind(), counts, message }
            }
        };
        match thread {
            None => self.emit(event),
            Some((tenant, thread)) => {
                self.engine.services.events.emit_for_tenant(self.now(), tenant, Some(thread), event);
            }
        }
        self.status_info(tool, scope, Language::English).await
    }

    /// Records a success that the journal does not know, for the tools that depend on it now or later.
    async fn add_evidence(&self, tool: &Tool, tenant: &Tenant, thread: &ThreadId) -> Result<(), StoreError> {
        let (tools, name) = (self.tools(), &tool.definition.name);
        let demand = tools.evidence_demand(name).max(EvidenceDemand::Once);
        let add = |evidence: &mut Evidence, now| evidence::add_success(evidence, &tools, (name, demand), now);
        evidence::update(&self.engine, tenant, thread, add).await
    }

    /// Creates the thread of a scope if it does not exist: its records must not be stored without it.
    pub(super) async fn ensure_thread(&self, scope: StatusScope<'_>) -> Result<(), StoreError> {
        match scope {
            StatusScope::Shared => Ok(()),
            StatusScope::Thread(tenant, thread) => self.touch_thread(tenant, thread).await,
        }
    }

    async fn apply_shared_event(&self, tool: &str, event: &StatusEvent) -> Result<ToolStatusInfo, CallError> {
        let tool = self.require_tool(tool)?;
        self.engine.statuses.apply(&status_key(&tool, StatusScope::Shared), event).await?;
        self.status_info(tool, StatusScope::Shared, Language::English).await
    }

    pub(super) fn require_tool(&self, name: &str) -> Result<Arc<Tool>, CallError> {
        self.get(name).ok_or_else(|| self.tool_not_found(name))
    }

    pub(super) fn tool_not_found(&self, name: &str) -> CallError {
        if let Some(reason) = self.missing_tool_reason(name) {
            return CallError::new(ErrorKind::ToolNotFound).operator(reason);
        }
        CallError::new(ErrorKind::ToolNotFound)
            .operator(format!("no tool is named `{name}`"))
            .detail(Detail::Suggestions(self.tools().suggest(name)))
    }
}

fn status_key(tool: &Tool, scope: StatusScope<'_>) -> StatusKey {
    let name = &tool.definition.name;
    match scope {
        StatusScope::Shared => StatusKey::shared(name),
        StatusScope::Thread(tenant, thread) => StatusKey::thread(name, tenant, thread),
    }
}

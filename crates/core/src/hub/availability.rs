//! Tool snapshots: the effective status of tools at one time, for all threads or for one.
//!
//! In: tools, a scope, and for a thread its evidence. Out: a `ToolSnapshot` for each tool. Offers, explanations, summaries, statuses
//! and saved snapshots are all derived from these, so that no two of them can disagree.

use std::{sync::Arc, time::Duration};

use super::{StatusScope, ToolHub, ToolStatusInfo};
use crate::{execution::Tool, journal::CallQuery, statuses::StatusKey};
use toolhub_types::{
    error::CallError,
    ids::{Tenant, ThreadId, ThreadKey},
    language::Language,
    outcome::Status,
    status::{
        self, EffectiveStatus, Evidence, Failure, MissingDependency, Readiness, StatusRecord, ToolStatus,
        dependency_readiness, missing_dependencies, next_expiry,
    },
    timestamp::Timestamp,
};

/// Number of a thread's last successes, or of the last calls of all threads, that are read from the journal.
const RECALL_LIMIT: usize = 100;

/// Timeout for reading past successes from the journal.
const RECALL_TIMEOUT: Duration = Duration::from_secs(1);

/// The effective status of a tool in one scope.
pub(super) struct ToolSnapshot {
    pub(super) tool: Arc<Tool>,
    pub(super) reading: EffectiveStatus,
    /// The dependencies that are not met in the thread.
    pub(super) unmet_dependencies: Vec<MissingDependency>,
    /// Whether an offer held for the thread contains the tool and should not, or lacks it.
    pub(super) should_rebind: bool,
    /// The record of the scope itself; in the shared scope the same as `shared_facts`.
    pub(super) own_facts: Arc<StatusRecord>,
    shared_facts: Arc<StatusRecord>,
}

impl ToolSnapshot {
    /// Whether the thread may use it now. A tool that a rule denies for all arguments is not offered.
    pub(super) fn is_offered(&self) -> bool {
        is_offered(&self.tool, &self.reading)
    }

    /// The later of the last failures of both records.
    pub(super) fn last_failure(&self) -> Option<Failure> {
        let failures =
            [&self.own_facts, &self.shared_facts].into_iter().filter_map(|facts| facts.last_failure.as_ref());
        failures.max_by_key(|failure| failure.at).cloned()
    }

    pub(super) fn info(&self) -> ToolStatusInfo {
        self.info_with_language(Language::English)
    }

    /// The status, with its reason in this language.
    pub(super) fn info_with_language(&self, language: Language) -> ToolStatusInfo {
        let Self { own_facts: own, shared_facts: shared, .. } = self;
        ToolStatusInfo {
            tool_name: self.tool.definition.name.clone(),
            status: self.reading.status,
            reason: self.reading.reason.text(language),
            last_updated: own.updated.max(shared.updated),
            consecutive_failures: own.consecutive_failures.max(shared.consecutive_failures),
            last_success_time: own.last_success.max(shared.last_success),
            last_failure_time: self.last_failure().map(|failure| failure.at),
            should_rebind: self.should_rebind,
        }
    }
}

impl ToolHub {
    /// Loads the successes of earlier processes from the journal, on the first request for a scope. If the journal does not
    /// answer, such a tool appears as never run.
    pub(super) async fn load_past_successes(&self, scope: StatusScope<'_>) {
        let load = async {
            match scope {
                StatusScope::Shared => self.load_shared_successes().await,
                StatusScope::Thread(tenant, thread) => self.load_thread_successes(tenant, thread).await,
            }
        };
        // The answer is given without the journal if that is too slow.
        let _ = tokio::time::timeout(RECALL_TIMEOUT, load).await;
    }

    async fn load_shared_successes(&self) {
        if !self.engine.statuses.successes.claim_shared_backfill() {
            return;
        }
        for (tool, at) in self.engine.journal.last_successes(RECALL_LIMIT, self.now()).await.unwrap_or_default() {
            if let Some(tool) = self.get(&tool) {
                tool.runtime.last_success.backfill(at);
            }
        }
    }

    async fn load_thread_successes(&self, tenant: &Tenant, thread: &ThreadId) {
        let (successes, owner) = (&self.engine.statuses.successes, ThreadKey::new(tenant, thread));
        if successes.is_backfilled(&owner) {
            return;
        }
        let (thread_filter, status) = (Some(thread.clone()), Some(Status::Success));
        let query = CallQuery { thread: thread_filter, status, limit: RECALL_LIMIT, ..CallQuery::default() };
        // If the store does not answer, the next request tries again.
        let Ok(page) = self.engine.journal.calls(tenant, &query, &[], self.now()).await else { return };
        let ended = page
            .calls
            .iter()
            .filter_map(|call| Some((StatusKey::thread(&call.tool, tenant, thread), call.outcome.as_ref()?.ended_at)));
        successes.backfill(owner, ended);
    }

    /// Snapshots of these tools in a scope.
    pub(super) async fn snapshot_tools(
        &self,
        tools: Vec<Arc<Tool>>,
        scope: StatusScope<'_>,
    ) -> Result<Vec<ToolSnapshot>, CallError> {
        let now = self.now();
        let evidence = match scope {
            // Most tools have no dependencies, so that the store need not be read.
            StatusScope::Thread(tenant, thread) if tools.iter().any(|tool| !tool.definition.depends_on.is_empty()) => {
                self.engine.journal.evidence(tenant, thread, now).await?.0
            }
            StatusScope::Thread(..) | StatusScope::Shared => Evidence::default(),
        };
        Ok(self.snapshot_tools_with(tools, scope, &evidence, now))
    }

    /// Snapshots of these tools in a scope, with evidence that is already loaded.
    pub(super) fn snapshot_tools_with(
        &self,
        tools: Vec<Arc<Tool>>,
        scope: StatusScope<'_>,
        evidence: &Evidence,
        now: Timestamp,
    ) -> Vec<ToolSnapshot> {
        let held_offers = match scope {
            StatusScope::Shared => Vec::new(),
            StatusScope::Thread(tenant, thread) => self.engine.offers.for_thread(tenant, thread),
        };
        let settings = self.engine.statuses.settings();
        let snapshot = |tool: Arc<Tool>| {
            let (unmet_dependencies, presence) = match scope {
                // Evidence belongs to threads: in the shared scope all dependencies count as met.
                StatusScope::Shared => (Vec::new(), Readiness::Ready),
                StatusScope::Thread(..) => {
                    let unmet = missing_dependencies(&tool.definition.depends_on, evidence, now);
                    let presence = dependency_readiness(&tool.definition.depends_on, &unmet);
                    (unmet, presence)
                }
            };
            let presence = tool.presence_override().unwrap_or(presence);
            let (own_facts, shared_facts) = self.status_facts(&tool, scope, now);
            let evaluate = |facts: &StatusRecord| status::evaluate(facts, &presence, &settings, now);
            let mut reading = status::worst(evaluate(&own_facts), evaluate(&shared_facts));
            if presence == Readiness::DependenciesMet && reading.status == ToolStatus::Available {
                reading.next_change = next_expiry(&tool.definition.depends_on, evidence);
            }
            let offered = is_offered(&tool, &reading);
            let should_rebind = held_offers.iter().any(|offer| offer.is_stale_for(&tool.definition.name, offered));
            ToolSnapshot { tool, reading, unmet_dependencies, should_rebind, own_facts, shared_facts }
        };
        tools.into_iter().map(snapshot).collect()
    }

    /// The snapshot of one tool in a scope.
    pub(super) async fn snapshot_tool(
        &self,
        tool: Arc<Tool>,
        scope: StatusScope<'_>,
    ) -> Result<ToolSnapshot, CallError> {
        let not_found = || self.tool_not_found(&tool.definition.name);
        self.snapshot_tools(vec![tool.clone()], scope).await?.pop().ok_or_else(not_found)
    }

    /// The records of a scope: its own and the shared one.
    fn status_facts(
        &self,
        tool: &Tool,
        scope: StatusScope<'_>,
        now: Timestamp,
    ) -> (Arc<StatusRecord>, Arc<StatusRecord>) {
        let statuses = &self.engine.statuses;
        let shared = statuses.facts_at(&StatusKey::shared(&tool.definition.name), now).unwrap_or_default();
        match scope {
            StatusScope::Shared => {
                let shared = with_success(shared, tool.runtime.last_success.get());
                (shared.clone(), shared)
            }
            // Successes in other threads are not visible to this one.
            StatusScope::Thread(tenant, thread) => {
                let key = StatusKey::thread(&tool.definition.name, tenant, thread);
                let own = statuses.facts_at(&key, now).unwrap_or_default();
                (with_success(own, statuses.successes.get(&key)), shared)
            }
        }
    }
}

fn is_offered(tool: &Tool, reading: &EffectiveStatus) -> bool {
    reading.status == ToolStatus::Available && tool.gate.deny_all_rule(&tool.definition).is_none()
}

/// The record with a later success that is not stored.
fn with_success(mut facts: Arc<StatusRecord>, success: Option<Timestamp>) -> Arc<StatusRecord> {
    if success > facts.last_success {
        Arc::make_mut(&mut facts).last_success = success;
    }
    facts
}

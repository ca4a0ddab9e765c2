//! How somebody sees tools at one moment: everybody, or one thread.
//!
//! In: tools, a view, and for a thread its evidence. Out: what is true of each tool. Every answer about statuses is made
//! of this, so that no two of them can disagree: the offered list, the explanation, the summary, the status itself, and
//! the saved text.

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

/// How many of a thread's last successes, or of everybody's last calls, are looked up.
const RECALL_LIMIT: usize = 100;

/// How long the journal is waited for.
const RECALL_TIMEOUT: Duration = Duration::from_secs(1);

/// A tool as somebody sees it.
pub(super) struct ToolSnapshot {
    pub(super) tool: Arc<Tool>,
    pub(super) reading: EffectiveStatus,
    /// What the tool still waits for in the thread.
    pub(super) unmet_dependencies: Vec<MissingDependency>,
    /// Whether a list that somebody holds for the thread has the tool and should not, or lacks it.
    pub(super) should_rebind: bool,
    /// The record of the view itself; for everybody's view the same as `shared`.
    pub(super) own_facts: Arc<StatusRecord>,
    shared_facts: Arc<StatusRecord>,
}

impl ToolSnapshot {
    /// Whether the thread may use it now. What a rule denies whatever the arguments is not worth a model's attention.
    pub(super) fn is_offered(&self) -> bool {
        is_offered(&self.tool, &self.reading)
    }

    /// The later of the failures that count in the view.
    pub(super) fn last_failure(&self) -> Option<Failure> {
        let failures =
            [&self.own_facts, &self.shared_facts].into_iter().filter_map(|facts| facts.last_failure.as_ref());
        failures.max_by_key(|failure| failure.at).cloned()
    }

    pub(super) fn info(&self) -> ToolStatusInfo {
        self.info_with_language(Language::English)
    }

    /// With the reason in this language.
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
    /// Learns what succeeded before this process, the first time somebody asks about a thread, or about all. Where the journal
    /// does not answer, such a tool reads as never run.
    pub(super) async fn load_past_successes(&self, view: StatusScope<'_>) {
        let recalling = async {
            match view {
                StatusScope::Shared => self.load_shared_successes().await,
                StatusScope::Thread(tenant, thread) => self.load_thread_successes(tenant, thread).await,
            }
        };
        // What is known without the journal is told in any case.
        let _ = tokio::time::timeout(RECALL_TIMEOUT, recalling).await;
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
        let (wanted, status) = (Some(thread.clone()), Some(Status::Success));
        let query = CallQuery { thread: wanted, status, limit: RECALL_LIMIT, ..CallQuery::default() };
        // One that does not answer is asked again next time.
        let Ok(page) = self.engine.journal.calls(tenant, &query, &[], self.now()).await else { return };
        let ended = page
            .calls
            .iter()
            .filter_map(|call| Some((StatusKey::thread(&call.tool, tenant, thread), call.outcome.as_ref()?.ended_at)));
        successes.backfill(owner, ended);
    }

    /// These tools as somebody sees them now.
    pub(super) async fn snapshot_tools(
        &self,
        tools: Vec<Arc<Tool>>,
        view: StatusScope<'_>,
    ) -> Result<Vec<ToolSnapshot>, CallError> {
        let now = self.now();
        let evidence = match view {
            // Most tools wait for nothing, and the store need not be asked.
            StatusScope::Thread(tenant, thread) if tools.iter().any(|tool| !tool.definition.depends_on.is_empty()) => {
                self.engine.journal.evidence(tenant, thread, now).await?.0
            }
            StatusScope::Thread(..) | StatusScope::Shared => Evidence::default(),
        };
        Ok(self.snapshot_tools_with(tools, view, &evidence, now))
    }

    /// The same, for whoever has the evidence at hand.
    pub(super) fn snapshot_tools_with(
        &self,
        tools: Vec<Arc<Tool>>,
        view: StatusScope<'_>,
        evidence: &Evidence,
        now: Timestamp,
    ) -> Vec<ToolSnapshot> {
        let held = match view {
            StatusScope::Shared => Vec::new(),
            StatusScope::Thread(tenant, thread) => self.engine.offers.for_thread(tenant, thread),
        };
        let settings = self.engine.statuses.settings();
        let see = |tool: Arc<Tool>| {
            let (waits, presence) = match view {
                // Evidence belongs to threads: for everybody no tool waits.
                StatusScope::Shared => (Vec::new(), Readiness::Ready),
                StatusScope::Thread(..) => {
                    let waits = missing_dependencies(&tool.definition.depends_on, evidence, now);
                    let presence = dependency_readiness(&tool.definition.depends_on, &waits);
                    (waits, presence)
                }
            };
            let presence = tool.presence_override().unwrap_or(presence);
            let (own, shared) = self.status_facts(&tool, view, now);
            let read = |facts: &StatusRecord| status::evaluate(facts, &presence, &settings, now);
            let mut reading = status::worst(read(&own), read(&shared));
            if presence == Readiness::DependenciesMet && reading.status == ToolStatus::Available {
                reading.next_change = next_expiry(&tool.definition.depends_on, evidence);
            }
            let offered = is_offered(&tool, &reading);
            let should_rebind = held.iter().any(|offer| offer.is_stale_for(&tool.definition.name, offered));
            ToolSnapshot {
                tool,
                reading,
                unmet_dependencies: waits,
                should_rebind,
                own_facts: own,
                shared_facts: shared,
            }
        };
        tools.into_iter().map(see).collect()
    }

    /// One tool as somebody sees it now.
    pub(super) async fn snapshot_tool(
        &self,
        tool: Arc<Tool>,
        view: StatusScope<'_>,
    ) -> Result<ToolSnapshot, CallError> {
        let unknown = || self.tool_not_found(&tool.definition.name);
        self.snapshot_tools(vec![tool.clone()], view).await?.pop().ok_or_else(unknown)
    }

    /// The records that make up a view: its own and the shared one.
    fn status_facts(
        &self,
        tool: &Tool,
        view: StatusScope<'_>,
        now: Timestamp,
    ) -> (Arc<StatusRecord>, Arc<StatusRecord>) {
        let statuses = &self.engine.statuses;
        let shared = statuses.facts_at(&StatusKey::shared(&tool.definition.name), now).unwrap_or_default();
        match view {
            StatusScope::Shared => {
                let shared = with_success(shared, tool.runtime.last_success.get());
                (shared.clone(), shared)
            }
            // That a tool did well in other threads is no news about this one, and not this one's affair.
            StatusScope::Thread(tenant, thread) => {
                let whose = StatusKey::thread(&tool.definition.name, tenant, thread);
                let own = statuses.facts_at(&whose, now).unwrap_or_default();
                (with_success(own, statuses.successes.get(&whose)), shared)
            }
        }
    }
}

fn is_offered(tool: &Tool, reading: &EffectiveStatus) -> bool {
    reading.status == ToolStatus::Available && tool.gate.deny_all_rule(&tool.definition).is_none()
}

/// The record with a success that was not worth writing down.
fn with_success(mut facts: Arc<StatusRecord>, success: Option<Timestamp>) -> Arc<StatusRecord> {
    if success > facts.last_success {
        Arc::make_mut(&mut facts).last_success = success;
    }
    facts
}

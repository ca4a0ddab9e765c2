//! Tool snapshots: the effective status of tools at one time, for all threads or for one.
//!
//! In: tools and a scope. Out: a `ToolSnapshot` for each tool. Offers, explanations, summaries, statuses and saved snapshots are
//! all derived from these, so that no two of them can disagree; only offers skip tools that are the same in all threads. Every
//! other question loads what earlier processes recorded.

use std::sync::Arc;

use super::{StatusScope, ToolHub, ToolStatusInfo};
use crate::{evidence, execution::Tool, statuses::StatusKey};
use toolhub_types::{
    error::CallError,
    ids::ThreadKey,
    language::Language,
    status::{
        self, EffectiveStatus, Evidence, Failure, MissingDependency, Readiness, StatusRecord, ToolStatus,
        dependencies_changed, dependency_readiness, missing_dependencies, next_expiry,
    },
    timestamp::Timestamp,
};

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
    /// Whether one of the records counts on this node only.
    pub(super) is_local: bool,
    /// When the status last changed; not before the scope began to exist.
    last_changed: Timestamp,
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

    /// The status, with its reason in this language.
    pub(super) fn info(&self, language: Language) -> ToolStatusInfo {
        let Self { own_facts: own, shared_facts: shared, .. } = self;
        ToolStatusInfo {
            tool_name: self.tool.definition.name.clone(),
            status: self.reading.status,
            reason: self.reading.reason.text(language),
            last_updated: self.last_changed,
            consecutive_failures: own.consecutive_failures.max(shared.consecutive_failures),
            last_success_time: own.last_success.max(shared.last_success),
            last_failure_time: own.last_failure_time().max(shared.last_failure_time()),
            should_rebind: self.should_rebind,
            local: self.is_local,
        }
    }
}

impl ToolHub {
    /// The statuses of these tools in a scope.
    pub(super) async fn status_infos(
        &self,
        tools: Vec<Arc<Tool>>,
        scope: StatusScope<'_>,
        language: Language,
    ) -> Result<Vec<ToolStatusInfo>, CallError> {
        let evidence = self.load_evidence(scope, has_dependencies(&tools)).await?;
        let since = self.scope_start(scope).await?;
        let snapshots = self.snapshot_tools_with(tools, scope, &evidence, since);
        Ok(snapshots.iter().map(|snapshot| snapshot.info(language)).collect())
    }

    /// The status of one tool in a scope.
    pub(super) async fn status_info(
        &self,
        tool: Arc<Tool>,
        scope: StatusScope<'_>,
        language: Language,
    ) -> Result<ToolStatusInfo, CallError> {
        let not_found = || self.tool_not_found(&tool.definition.name);
        self.status_infos(vec![tool.clone()], scope, language).await?.pop().ok_or_else(not_found)
    }

    /// When a scope began to exist: when the thread was created, or the hub was built.
    pub(super) async fn scope_start(&self, scope: StatusScope<'_>) -> Result<Timestamp, CallError> {
        let created = match scope {
            StatusScope::Shared => None,
            StatusScope::Thread(tenant, thread) => {
                self.engine.thread_store.find(&ThreadKey::new(tenant, thread)).await?.map(|found| found.created)
            }
        };
        Ok(created.or_else(|| self.engine.started_at.get().copied()).unwrap_or_else(|| self.now()))
    }

    /// Snapshots of these tools in a scope, for those who do not ask for their times.
    pub(super) async fn snapshot_tools(
        &self,
        tools: Vec<Arc<Tool>>,
        scope: StatusScope<'_>,
    ) -> Result<Vec<ToolSnapshot>, CallError> {
        let evidence = self.load_evidence(scope, has_dependencies(&tools)).await?;
        // Offers are made for every step: read the thread's row only if a reset may be older than the thread.
        let shared_facts = |tool: &Arc<Tool>| self.engine.statuses.facts(&StatusKey::shared(&tool.definition.name));
        let since = if tools.iter().filter_map(shared_facts).any(|facts| facts.reset.is_some()) {
            self.scope_start(scope).await?
        } else {
            Timestamp::default()
        };
        Ok(self.snapshot_tools_with(tools, scope, &evidence, since))
    }

    /// Loads what earlier processes recorded about a scope, and for a thread its evidence. Most tools have no dependencies, so
    /// that the evidence need not be read.
    pub(super) async fn load_evidence(
        &self,
        scope: StatusScope<'_>,
        has_dependencies: bool,
    ) -> Result<Evidence, CallError> {
        match scope {
            StatusScope::Shared => evidence::recall_shared(&self.engine).await,
            StatusScope::Thread(tenant, thread) if has_dependencies => {
                return Ok(evidence::load(&self.engine, tenant, thread).await?.0);
            }
            StatusScope::Thread(tenant, thread) => evidence::recall_thread(&self.engine, tenant, thread).await,
        }
        Ok(Evidence::default())
    }

    /// Snapshots of these tools in a scope that exists `since` then, with evidence that is already loaded.
    pub(super) fn snapshot_tools_with(
        &self,
        tools: Vec<Arc<Tool>>,
        scope: StatusScope<'_>,
        evidence: &Evidence,
        since: Timestamp,
    ) -> Vec<ToolSnapshot> {
        let now = self.now();
        let held_offers = match scope {
            StatusScope::Shared => Vec::new(),
            StatusScope::Thread(tenant, thread) => self.engine.offers.for_thread(tenant, thread),
        };
        let settings = self.engine.statuses.settings();
        let snapshot = |tool: Arc<Tool>| {
            let depends_on = &tool.definition.depends_on;
            let (unmet_dependencies, presence, changed) = match scope {
                // Evidence belongs to threads: in the shared scope all dependencies count as met.
                StatusScope::Shared => (Vec::new(), Readiness::Ready, None),
                StatusScope::Thread(..) => {
                    let unmet = missing_dependencies(depends_on, evidence, now);
                    let presence = dependency_readiness(depends_on, &unmet);
                    (unmet, presence, dependencies_changed(depends_on, evidence, now))
                }
            };
            let presence = tool.presence_override().unwrap_or(presence);
            let (own_facts, shared_facts) = self.status_facts(&tool, scope, since, now);
            let is_local = self.is_status_local(&tool, scope);
            let mut reading = status::evaluate_in_thread(&own_facts, &shared_facts, &presence, &settings, now);
            if presence == Readiness::DependenciesMet && reading.status == ToolStatus::Available {
                reading.next_change = next_expiry(depends_on, evidence);
            }
            if let (StatusScope::Thread(tenant, thread), Some(_)) = (scope, reading.next_change) {
                evidence::schedule_expiry(&self.engine, tenant, thread, &tool, evidence);
            }
            let offered = is_offered(&tool, &reading);
            let should_rebind = held_offers.iter().any(|offer| offer.is_stale_for(&tool.definition.name, offered));
            let facts_changed =
                [&own_facts, &shared_facts].map(|facts| facts.last_changed(now).max(facts.last_success));
            let last_changed = facts_changed.into_iter().chain([changed, tool.registered_at]).max().flatten();
            let last_changed = match scope {
                StatusScope::Shared => last_changed.unwrap_or(since),
                StatusScope::Thread(..) => last_changed.map_or(since, |changed| changed.max(since)),
            };
            ToolSnapshot {
                tool,
                reading,
                unmet_dependencies,
                should_rebind,
                own_facts,
                shared_facts,
                is_local,
                last_changed,
            }
        };
        tools.into_iter().map(snapshot).collect()
    }

    /// The status of a tool in the shared scope.
    pub(super) fn shared_status(&self, tool: &Arc<Tool>) -> EffectiveStatus {
        let presence = tool.presence_override().unwrap_or_default();
        let (now, settings) = (self.now(), self.engine.statuses.settings());
        let (facts, _) = self.status_facts(tool, StatusScope::Shared, now, now);
        status::evaluate(&facts, &presence, &settings, now)
    }

    /// Whether one of the records of a scope counts on this node only.
    fn is_status_local(&self, tool: &Tool, scope: StatusScope<'_>) -> bool {
        let (statuses, name) = (&self.engine.statuses, &tool.definition.name);
        let is_own_local = match scope {
            StatusScope::Shared => false,
            StatusScope::Thread(tenant, thread) => statuses.is_local(&StatusKey::thread(name, tenant, thread)),
        };
        is_own_local || statuses.is_local(&StatusKey::shared(name))
    }

    /// The records of a scope: its own and the shared one.
    fn status_facts(
        &self,
        tool: &Tool,
        scope: StatusScope<'_>,
        since: Timestamp,
        now: Timestamp,
    ) -> (Arc<StatusRecord>, Arc<StatusRecord>) {
        let statuses = &self.engine.statuses;
        let mut shared = statuses.facts_at(&StatusKey::shared(&tool.definition.name), now).unwrap_or_default();
        match scope {
            StatusScope::Shared => {
                let shared = with_success(shared, tool.runtime.last_success.get());
                (shared.clone(), shared)
            }
            // Successes in other threads are not visible to this one.
            StatusScope::Thread(tenant, thread) => {
                let key = StatusKey::thread(&tool.definition.name, tenant, thread);
                let own = statuses.facts_at(&key, now).unwrap_or_default();
                if shared.reset.is_some_and(|reset| reset < since) {
                    // The tool was reset before the thread existed: there it has never run.
                    Arc::make_mut(&mut shared).reset = None;
                }
                if shared.last_success.is_some() && shared.last_failure.is_none() {
                    // Recorded for the failure rate; it ended no failure that the threads share.
                    Arc::make_mut(&mut shared).last_success = None;
                }
                (with_success(own, statuses.successes.get_since_reset(&key)), shared)
            }
        }
    }
}

fn has_dependencies(tools: &[Arc<Tool>]) -> bool {
    tools.iter().any(|tool| !tool.definition.depends_on.is_empty())
}

pub(super) fn is_offered(tool: &Tool, reading: &EffectiveStatus) -> bool {
    reading.status == ToolStatus::Available && is_listed(tool)
}

/// Whether the tool may be offered at all. One that a rule denies for all arguments is not.
pub(super) fn is_listed(tool: &Tool) -> bool {
    !tool.unlisted && tool.gate.deny_all_rule(&tool.definition, None).is_none()
}

/// The record with a later success that is not stored. A success before the last reset does not count.
fn with_success(mut facts: Arc<StatusRecord>, success: Option<Timestamp>) -> Arc<StatusRecord> {
    if success > facts.last_success && success >= facts.reset {
        Arc::make_mut(&mut facts).last_success = success;
    }
    facts
}

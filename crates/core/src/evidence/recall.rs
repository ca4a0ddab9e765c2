//! Finds successes in the journal that this process has not seen, so that a restart or a new dependency forgets none.
//!
//! In: a thread. Out: the times of its last successes in `statuses`, and those of them that its evidence lacks. Reads the
//! journal once per thread, and again after a change of the registry for tools on which others have come to depend.

use std::time::Duration;

use crate::{engine::Engine, execution::EvidenceDemand, journal::CallQuery, statuses::StatusKey};
use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    outcome::Status,
    status::Evidence,
    timestamp::Timestamp,
    tool::ToolName,
};

/// Number of a thread's last successes that are read from the journal together. Those of tools that are not among them are
/// looked for one by one, however old they are.
const RECALL_LIMIT: usize = 100;

/// Timeout for reading the journal. Without an answer, a status question is answered without it, and the next one reads it.
const RECALL_TIMEOUT: Duration = Duration::from_secs(1);

/// Loads the successes of a thread from before this process.
pub(crate) async fn recall_thread(engine: &Engine, tenant: &Tenant, thread: &ThreadId) {
    let (owner, tools) = (ThreadKey::new(tenant, thread), engine.registry.snapshot());
    let successes = &engine.statuses.successes;
    let recalled = successes.recalled_revision(&owner);
    if recalled == Some(tools.revision()) {
        return;
    }
    let recall = async {
        // After a change of the registry only the evidence may lack something.
        let names: Vec<ToolName> = match recalled {
            Some(_) => tools.evidence_demands().map(|(tool, _)| tool.clone()).collect(),
            None if read_successes(engine, tenant, thread, None, RECALL_LIMIT).await? => {
                tools.names().cloned().collect()
            }
            None => Vec::new(),
        };
        for tool in &names {
            if successes.get(&StatusKey::thread(tool, tenant, thread)).is_none() {
                read_successes(engine, tenant, thread, Some(tool), 1).await?;
                // A store in memory answers without waiting.
                tokio::task::yield_now().await;
            }
        }
        Some(())
    };
    if let Ok(Some(())) = tokio::time::timeout(RECALL_TIMEOUT, recall).await {
        successes.mark_recalled(owner, tools.revision());
    }
}

/// Loads the last successes over all threads from before this process.
pub(crate) async fn recall_shared(engine: &Engine) {
    let recall = engine.statuses.successes.shared_recall.get_or_try_init(|| async {
        let (tools, now) = (engine.registry.snapshot(), engine.services.clock.now());
        let started_at = engine.started_at.get().copied().unwrap_or(now);
        if !engine.journal.has_calls_until(started_at, now).await? {
            return Ok(());
        }
        for name in tools.names() {
            // A store in memory answers without waiting.
            tokio::task::yield_now().await;
            let Some(tool) = tools.get(name).filter(|tool| tool.runtime.last_success.get().is_none()) else { continue };
            let Some(at) = engine.journal.last_success(name, now).await? else { continue };
            let reset = engine.statuses.facts(&StatusKey::shared(name)).and_then(|facts| facts.reset);
            if Some(at) > reset {
                tool.runtime.last_success.backfill(at);
            }
        }
        Ok::<_, toolhub_storage::backend::StoreError>(())
    });
    let _ = tokio::time::timeout(RECALL_TIMEOUT, recall).await;
}

/// Successes that the stored evidence of a thread lacks although other tools depend on them. A reset of the evidence hides
/// the successes before it.
pub(super) fn unrecorded_successes(engine: &Engine, tenant: &Tenant, thread: &ThreadId, stored: &Evidence) -> Evidence {
    let tools = engine.registry.snapshot();
    let mut found: Vec<(Timestamp, &ToolName)> = Vec::new();
    for (tool, demand) in tools.evidence_demands() {
        let lacks = |at: Timestamp| match stored.get(tool) {
            None => Some(at) > stored.reset_at(tool),
            Some(success) => demand == EvidenceDemand::Latest && at > success.last,
        };
        let success = engine.statuses.successes.get(&StatusKey::thread(tool, tenant, thread));
        found.extend(success.filter(|at| lacks(*at)).map(|at| (at, tool)));
    }
    found.sort();
    let mut evidence = Evidence::default();
    for (at, tool) in found {
        evidence.add(tool, at, []);
    }
    evidence
}

/// Reads the last successes of a thread, or of one tool in it. Returns whether the journal has older ones; `None` if the
/// journal did not answer.
async fn read_successes(
    engine: &Engine,
    tenant: &Tenant,
    thread: &ThreadId,
    tool: Option<&ToolName>,
    limit: usize,
) -> Option<bool> {
    let (thread_filter, status) = (Some(thread.clone()), Some(Status::Success));
    let mut query = CallQuery { thread: thread_filter, status, tool: tool.cloned(), limit, ..CallQuery::default() };
    loop {
        let page = engine.journal.calls(tenant, &query, &[], engine.services.clock.now()).await.ok()?;
        for call in &page.calls {
            let Some(outcome) = &call.outcome else { continue };
            let key = StatusKey::thread(&call.tool, tenant, thread);
            let reset = engine.statuses.facts(&key).and_then(|facts| facts.reset);
            engine.statuses.successes.recall(key, outcome.ended_at, reset);
        }
        // A page without a match may have a next one.
        if !page.calls.is_empty() || page.next.is_none() {
            return Some(page.next.is_some());
        }
        query.cursor = page.next;
    }
}

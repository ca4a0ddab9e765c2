//! Health checks of withheld tools, for executors that can check without a call.
//!
//! In: the statuses of tools. Out: tools that become available again without risking a call. Checks only tools whose shared
//! breaker is open, first after ten seconds, then with exponential backoff. `status` decides what a healthy tool means for the
//! breaker.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt};

use crate::{
    engine::Engine,
    execution::Tool,
    statuses::{StatusKey, Statuses},
};
use toolhub_storage::clock::{self, Instant};
use toolhub_types::{
    status::{Breaker, BreakerCause, StatusEvent},
    timestamp::Timestamp,
    tool::ToolName,
};

/// Delay between the opening of the breaker and the first check.
const INITIAL_DELAY: Duration = Duration::from_secs(10);
/// Longest delay between two checks of a tool.
const MAX_DELAY: Duration = Duration::from_secs(5 * 60);
/// Timeout of one check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of checks that run concurrently.
const CONCURRENCY: usize = 16;
/// Time for which status changes are collected: all tools of one service fail together, and are handled in one pass.
const DEBOUNCE: Duration = Duration::from_secs(1);

/// When a tool is checked next, and the current backoff delay.
struct CheckSchedule {
    due_at: Instant,
    delay: Duration,
}

/// Checks withheld tools until the hub is dropped.
pub(super) async fn run(hub: Weak<Engine>) {
    let mut schedules: HashMap<ToolName, CheckSchedule> = HashMap::new();
    loop {
        let Some(engine) = hub.upgrade() else { return };
        let (statuses, services) = (engine.statuses.clone(), engine.services.clone());
        // Enabled before the statuses are read, so that no change is lost in between.
        let mut changed = pin!(statuses.next_change());
        changed.as_mut().enable();
        let withheld = withheld_tools(&engine);
        let nodes = engine.nodes.clone();
        drop(engine);
        let now = services.clock.instant();
        schedules = withheld
            .iter()
            .map(|(tool, since)| {
                let name = tool.definition.name.clone();
                let remaining = INITIAL_DELAY.saturating_sub(services.clock.now().since(*since));
                let schedule = schedules
                    .remove(&name)
                    .unwrap_or(CheckSchedule { due_at: clock::deadline_after(now, remaining), delay: INITIAL_DELAY });
                (name, schedule)
            })
            .collect();
        let due =
            withheld.into_iter().map(|(tool, _)| tool).filter(|tool| schedules[&tool.definition.name].due_at <= now);
        let is_maintainer = nodes.is_maintainer();
        let check = |tool: Arc<Tool>| async move {
            // One node of several is enough; the others only stay ready to go on.
            let is_healthy = if is_maintainer { Some(is_healthy(&tool).await) } else { None };
            (tool.definition.name.clone(), is_healthy)
        };
        let results: Vec<(ToolName, Option<bool>)> =
            futures_util::stream::iter(due).map(check).buffer_unordered(CONCURRENCY).collect().await;
        for (name, is_healthy) in results {
            if is_healthy == Some(true) {
                mark_healthy(&statuses, &name).await;
            }
            // The next pass drops the schedule of a tool that is no longer withheld. One that still is, is checked less often.
            if let Some(schedule) = schedules.get_mut(&name) {
                if is_healthy.is_some() {
                    schedule.delay = (schedule.delay * 2).min(MAX_DELAY);
                }
                schedule.due_at = clock::deadline_after(services.clock.instant(), schedule.delay);
            }
        }
        let has_changed = match schedules.values().map(|schedule| schedule.due_at).min() {
            Some(next) => tokio::time::timeout_at(next, changed).await.is_ok(),
            None => {
                changed.await;
                true
            }
        };
        if has_changed {
            tokio::time::sleep(DEBOUNCE).await;
        }
    }
}

/// The tools whose shared breaker is open and whose executors have a health check; and since when.
fn withheld_tools(engine: &Engine) -> Vec<(Arc<Tool>, Timestamp)> {
    if engine.statuses.is_empty() {
        return Vec::new();
    }
    let failed = |tool: Arc<Tool>| {
        let facts = engine.statuses.facts(&StatusKey::shared(&tool.definition.name))?;
        let since = match &facts.breaker {
            // A breaker opened by an operator is not closed by a check.
            Breaker::Open { since, cause, .. } if !matches!(cause, BreakerCause::ByHand { .. }) => *since,
            _ => return None,
        };
        let has_check = tool.executor.health_check(&tool.definition).is_some();
        has_check.then_some((tool, since))
    };
    engine.registry.snapshot().iter().cloned().filter_map(failed).collect()
}

/// Runs the health check of a tool. A panic or a timeout counts as unhealthy.
async fn is_healthy(tool: &Tool) -> bool {
    let Some(check) = tool.executor.health_check(&tool.definition) else { return false };
    let result = tokio::time::timeout(CHECK_TIMEOUT, AssertUnwindSafe(check).catch_unwind()).await;
    matches!(result, Ok(Ok(true)))
}

/// Reports a tool as healthy. If the store does not accept that, the tool is checked again later.
async fn mark_healthy(statuses: &Arc<Statuses>, name: &ToolName) {
    let _ = statuses.apply(&StatusKey::shared(name), &StatusEvent::Healthy).await;
}

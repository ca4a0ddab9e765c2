//! Asks whether tools that are withheld work again, where their executors know a way to find out.
//!
//! In: the statuses of tools. Out: tools that come back without a call that had to be risked. Only what is withheld for all
//! threads is asked, the first time after ten seconds, then after twice as long each time. What a sign of health means is decided
//! by `status`.

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
    registry::ToolFilter,
    statuses::{StatusKey, Statuses},
};
use toolhub_storage::clock::{self, Instant};
use toolhub_types::{
    status::{Breaker, BreakerCause, StatusEvent},
    timestamp::Timestamp,
    tool::ToolName,
};

/// How long after a tool was withheld it is asked the first time.
const INITIAL_DELAY: Duration = Duration::from_secs(10);
/// How long it is left alone at most.
const MAX_DELAY: Duration = Duration::from_secs(5 * 60);
/// How long an answer may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// How many are asked beside each other.
const CONCURRENCY: usize = 16;
/// How long changes are gathered: all tools of one service fail together, and are looked at together.
const DEBOUNCE: Duration = Duration::from_secs(1);

/// When a tool is asked next, and how long it was left alone before.
struct CheckSchedule {
    due_at: Instant,
    delay: Duration,
}

/// Asks for as long as the hub lives.
pub(super) async fn run(hub: Weak<Engine>) {
    let mut rounds: HashMap<ToolName, CheckSchedule> = HashMap::new();
    loop {
        let Some(engine) = hub.upgrade() else { return };
        let (statuses, services) = (engine.statuses.clone(), engine.services.clone());
        // Made before looking, so that no change falls in between.
        let mut news = pin!(statuses.next_change());
        news.as_mut().enable();
        let withheld = withheld_tools(&engine);
        drop(engine);
        let now = services.clock.instant();
        rounds = withheld
            .iter()
            .map(|(tool, since)| {
                let name = tool.definition.name.clone();
                let left = INITIAL_DELAY.saturating_sub(services.clock.now().since(*since));
                let round = rounds
                    .remove(&name)
                    .unwrap_or(CheckSchedule { due_at: clock::deadline_after(now, left), delay: INITIAL_DELAY });
                (name, round)
            })
            .collect();
        let due = withheld.into_iter().map(|(tool, _)| tool).filter(|tool| rounds[&tool.definition.name].due_at <= now);
        let asked: Vec<(ToolName, bool)> = futures_util::stream::iter(due)
            .map(|tool| async move { (tool.definition.name.clone(), is_healthy(&tool).await) })
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        for (name, well) in asked {
            if well {
                mark_healthy(&statuses, &name).await;
            }
            // One that came back is looked at no more. One that did not, also because its failures no longer count, is left
            // alone for longer.
            if let Some(round) = rounds.get_mut(&name) {
                round.delay = (round.delay * 2).min(MAX_DELAY);
                round.due_at = clock::deadline_after(services.clock.instant(), round.delay);
            }
        }
        let stirred = match rounds.values().map(|round| round.due_at).min() {
            Some(next) => tokio::time::timeout_at(next, news).await.is_ok(),
            None => {
                news.await;
                true
            }
        };
        if stirred {
            tokio::time::sleep(DEBOUNCE).await;
        }
    }
}

/// The tools that are withheld for all threads because they failed, and can be asked; and since when.
fn withheld_tools(engine: &Engine) -> Vec<(Arc<Tool>, Timestamp)> {
    if engine.statuses.is_empty() {
        return Vec::new();
    }
    let failed = |tool: Arc<Tool>| {
        let facts = engine.statuses.facts(&StatusKey::shared(&tool.definition.name))?;
        let since = match &facts.breaker {
            // An operator who said so knows something that a check does not.
            Breaker::Open { since, cause, .. } if !matches!(cause, BreakerCause::ByHand { .. }) => *since,
            _ => return None,
        };
        let can_be_asked = tool.executor.health_check(&tool.definition).is_some();
        can_be_asked.then_some((tool, since))
    };
    engine.registry.snapshot().list(&ToolFilter::default()).into_iter().filter_map(failed).collect()
}

/// Whether a tool says that it works. One that panics or takes too long does not.
async fn is_healthy(tool: &Tool) -> bool {
    let Some(asking) = tool.executor.health_check(&tool.definition) else { return false };
    let asked = tokio::time::timeout(CHECK_TIMEOUT, AssertUnwindSafe(asking).catch_unwind()).await;
    matches!(asked, Ok(Ok(true)))
}

/// Brings a tool back. Where that cannot be written, it is asked again.
async fn mark_healthy(statuses: &Arc<Statuses>, name: &ToolName) {
    let _ = statuses.apply(&StatusKey::shared(name), &StatusEvent::Healthy).await;
}

//! Tells subscribers which commits the store has lost although it had acknowledged them.
//!
//! In: the reports of the store. Out: `store.lost` events, each tenant with its own partitions and calls; and a scan of the open calls, because
//! a call whose end was lost is open again.

use std::{
    sync::{
        Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::{
    alerts::{self, Condition, Signal},
    engine::Engine,
};
use toolhub_storage::backend::{Backend, Batch, Durability, LossReport, TenantLosses};
use toolhub_types::{event_kind::EventKind, timestamp::Timestamp};

/// How often the store is asked. It answers from memory.
const INTERVAL: Duration = Duration::from_millis(200);

/// Emits an event for each report, until the hub is dropped. `seen` counts the reports that were handled.
pub(super) async fn run(hub: Weak<Engine>, seen: &AtomicUsize) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(engine) = hub.upgrade() else { return };
        let reports = engine.services.store.losses(seen.load(Ordering::Relaxed));
        seen.fetch_add(reports.len(), Ordering::Relaxed);
        if !reports.is_empty() {
            engine.journal.recovery_needed.notify_one();
        }
        emit(&engine, &reports).await;
    }
}

async fn emit(engine: &Engine, reports: &[LossReport]) {
    let Some(LossReport { commits, since, tenants }) = LossReport::merge(reports) else { return };
    let now = engine.services.clock.now();
    if let Some(signal) = engine.services.alerts.is_enabled().then(|| loss_signal(engine, commits, since)) {
        let write = signal.write(Durability::KillSafe).map(|write| Batch::new(alerts::partition()).with(write));
        let stored = match write {
            Ok(batch) => engine.services.store.commit(batch, now).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = stored {
            tracing::warn!(%error, "signal of lost commits not stored; no alert is sent");
        }
    }
    for (tenant, TenantLosses { partitions, calls }) in tenants {
        let event = EventKind::StoreLost {
            commits,
            since,
            partitions: partitions.named.into_iter().collect(),
            other_partitions: partitions.others,
            calls: calls.named.into_iter().collect(),
            other_calls: calls.others,
        };
        engine.services.events.emit_for_tenant(now, &tenant, None, event);
    }
}

fn loss_signal(engine: &Engine, commits: u64, since: Timestamp) -> Signal {
    let node = engine.nodes.own_name().clone();
    let reason = format!("the server of the store lost {commits} commits that it had acknowledged since {since}");
    Signal::happened(Condition::StoreLost, node, engine.services.clock.now(), reason)
}

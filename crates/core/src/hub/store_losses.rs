//! Tells subscribers which commits the store has lost although it had acknowledged them.
//!
//! In: the reports of the store. Out: `store.lost` events, each tenant with its own partitions; and a scan of the open calls, because
//! a call whose end was lost is open again.

use std::{
    collections::BTreeMap,
    sync::{
        Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::engine::Engine;
use toolhub_storage::backend::{LossReport, Partition};
use toolhub_types::{event_kind::EventKind, ids::Tenant};

/// How often the store is asked. It answers without a request.
const INTERVAL: Duration = Duration::from_secs(1);

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
        emit(&engine, &reports);
    }
}

fn emit(engine: &Engine, reports: &[LossReport]) {
    let Some(LossReport { commits, since, .. }) = LossReport::merge(reports) else { return };
    let mut by_tenant = BTreeMap::<Tenant, Vec<String>>::new();
    for text in reports.iter().flat_map(|report| &report.partitions) {
        let Ok(Partition { tenant, .. }) = text.parse() else { continue };
        let partitions = by_tenant.entry(tenant).or_default();
        if !partitions.contains(text) && partitions.len() < LossReport::MAX_NAMED {
            partitions.push(text.clone());
        }
    }
    let now = engine.services.clock.now();
    for (tenant, partitions) in by_tenant {
        let event = EventKind::StoreLost { commits, since, partitions };
        engine.services.events.emit_for_tenant(now, &tenant, None, event);
    }
}

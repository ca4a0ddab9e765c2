//! Announces tools whose dependencies were met and whose evidence has grown too old.
//!
//! In: the queue of expiries in `statuses`. Out: `tool.availability.changed` on time. The dependency check itself compares
//! timestamps and does not depend on this task.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use super::{emit_availability, schedule_expiry};
use crate::{engine::Engine, statuses::StatusKey};
use toolhub_types::{
    ids::ThreadKey,
    status::{Reason, missing_dependencies, tools_to_call},
};

/// Delay before a store that did not answer is asked again.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Announces expired evidence until the hub is dropped.
pub(crate) async fn watch_expiries(hub: Weak<Engine>) {
    loop {
        let Some(engine) = hub.upgrade() else { return };
        let (expiries, clock) = (&engine.statuses.expiries, &engine.services.clock);
        while let Some(key) = expiries.take_due(clock.now()) {
            announce_expired(&engine, key).await;
        }
        let (changed, wait) = (expiries.next_changed.clone(), expiries.next().map(|at| at.since(clock.now())));
        // The task must not keep the hub alive while it waits.
        drop(engine);
        match wait {
            None => changed.notified().await,
            Some(wait) => drop(tokio::time::timeout(wait, changed.notified()).await),
        }
    }
}

async fn announce_expired(engine: &Arc<Engine>, key: StatusKey) {
    let (Some(ThreadKey { tenant, thread }), Some((tool, _))) = (key.owner(), engine.registry.find(key.tool())) else {
        return;
    };
    let now = engine.services.clock.now();
    let Ok((evidence, _)) = engine.journal.evidence(tenant, thread, now).await else {
        engine.statuses.expiries.schedule(key, now + STORE_RETRY_DELAY);
        return;
    };
    let missing = missing_dependencies(&tool.definition.depends_on, &evidence, now);
    if missing.is_empty() {
        // The evidence was renewed in the meantime.
        schedule_expiry(engine, tenant, thread, &tool, &evidence);
    } else {
        let reason = Reason::WaitingFor { tools: tools_to_call(&missing) };
        emit_availability(engine, tenant, thread, &tool, (false, &reason));
    }
}

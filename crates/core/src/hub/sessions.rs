//! Session expiry: removes the state and closes the instances of sessions that timed out.
//!
//! In: the expired sessions of the state manager. Out: threads without session state. Readers never see an expired session,
//! whether or not this task has run. Each node ends the sessions that it has used, because it may have instances of them; the one that
//! does the maintenance looks for all others in the store.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::StreamExt;

use crate::engine::Engine;
use toolhub_types::ids::ThreadKey;

/// Number of sessions ended concurrently: closing an instance that is in use can take long.
const CONCURRENCY: usize = 16;

/// Removes expired sessions until the hub is dropped. Runs when a session is due, and at least every `interval`.
pub(super) async fn run_expiry(hub: Weak<Engine>, interval: Duration) {
    loop {
        let Some(engine) = hub.upgrade() else { return };
        let state = engine.services.state.clone();
        drop(engine);
        let _ = tokio::time::timeout(interval, state.wait_session_cleanup()).await;
        let Some(engine) = hub.upgrade() else { return };
        // If the store does not answer, the next iteration tries again.
        // A store of states beside the hub's may be one that no other node has.
        let scans = engine.nodes.is_maintainer() || !state.store_router().non_hub_stores().is_empty();
        if let Ok(ended) = state.find_ended_sessions(scans).await {
            futures_util::stream::iter(ended)
                .for_each_concurrent(CONCURRENCY, |owner| expire_session(&engine, owner))
                .await;
        }
    }
}

async fn expire_session(engine: &Arc<Engine>, owner: ThreadKey) {
    let services = &engine.services;
    if let Ok(true) = services.state.end_session(&owner).await {
        services.instances.close_instances(&owner, None, "its session expired").await;
    }
}

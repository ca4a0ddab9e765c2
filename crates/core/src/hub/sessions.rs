//! Ends sessions when their time is over: what they remembered goes, and the instances they made.
//!
//! In: what the state manager knows of sessions. Out: threads that begin anew. Nobody sees anything of a session that is
//! over, whether or not this has run.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::StreamExt;

use crate::engine::Engine;
use toolhub_types::ids::ThreadKey;

/// How many are ended beside each other: one whose instance is in use takes its time.
const CONCURRENCY: usize = 16;

/// Ends sessions for as long as the hub lives.
pub(super) async fn run_expiry(hub: Weak<Engine>, rest: Duration) {
    loop {
        let Some(engine) = hub.upgrade() else { return };
        let state = engine.services.state.clone();
        drop(engine);
        let _ = tokio::time::timeout(rest, state.wait_session_cleanup()).await;
        let Some(engine) = hub.upgrade() else { return };
        // A store that does not answer is asked again the next time.
        if let Ok(over) = state.find_ended_sessions().await {
            futures_util::stream::iter(over)
                .for_each_concurrent(CONCURRENCY, |owner| expire_session(&engine, owner))
                .await;
        }
    }
}

async fn expire_session(engine: &Arc<Engine>, owner: ThreadKey) {
    let services = &engine.services;
    if let Ok(true) = services.state.end_session(&owner).await {
        services.instances.close_instances(&owner, None, "its session is over").await;
    }
}

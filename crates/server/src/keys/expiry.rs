//! Tells the hub when keys expire, for alerts.
//!
//! In: the keys of config and store. Out: those with an end, once a minute, if any alert target wants to know.

use std::time::Duration;

use toolhub_core::{CancellationToken, ToolHub, clock::Timestamp, ids::Tenant, tasks};

use super::{KeyEntry, Keys};

const INTERVAL: Duration = Duration::from_secs(60);

/// Reports the ends of keys until the server stops.
pub(crate) fn watch(hub: ToolHub, keys: std::sync::Arc<Keys>, stop: CancellationToken) {
    tasks::spawn("key expiry", stop, move |stop| {
        let (hub, keys) = (hub.clone(), keys.clone());
        Box::pin(async move {
            loop {
                if hub.watches_key_expiry() {
                    hub.report_key_expiries(&expiries(&keys).await);
                }
                if stop.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_none() {
                    return;
                }
            }
        })
    });
}

async fn expiries(keys: &Keys) -> Vec<(String, Tenant, Timestamp)> {
    let read = |entry: &KeyEntry| Some((entry.name.to_string(), entry.tenant.clone(), entry.expires?));
    let mut found: Vec<_> = keys.config_keys().iter().filter_map(read).collect();
    // While the store does not answer, the last known keys count.
    if let Ok(stored) = keys.key_store().await {
        found.extend(stored.all().iter().filter_map(|stored| read(&stored.entry)));
    }
    found
}

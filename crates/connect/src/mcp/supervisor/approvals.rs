//! Applies the approvals of definitions that are given on other nodes.
//!
//! In: changes of the rows of a server. Out: its tools, registered again.

use std::{future::pending, time::Duration};

use futures_util::{FutureExt, StreamExt};
use toolhub_core::{
    SourceHandle,
    backend::{Table, WatchEvent, rewatch},
};

use crate::mcp::{pins, registration, source::McpSource};

/// Wait before a failed read is repeated.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Follows the approvals of this server; never ends.
pub(super) async fn follow(source: &McpSource, handle: &SourceHandle) {
    let Some(hub) = handle.hub().filter(|_| source.server.is_pinned()) else { return pending().await };
    // The first event makes it read them: they may have changed since the first list.
    let mut changes = rewatch(&*hub.store(), Table::McpServers);
    drop(hub);
    let concerns = |change: &WatchEvent| match change {
        WatchEvent::Row(key, _) => pins::is_of_server(&key.id, &source.server.name),
        WatchEvent::Lagged => true,
    };
    while let Some(change) = changes.next().await {
        let mut is_changed = concerns(&change);
        // One read is enough for all changes so far.
        while let Some(Some(change)) = changes.next().now_or_never() {
            is_changed |= concerns(&change);
        }
        if !is_changed {
            continue;
        }
        while let Err(error) = registration::apply_approvals(source, handle).await {
            tracing::debug!(server = source.server.name, %error, "approvals of definitions cannot be read; retrying");
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
    pending::<()>().await;
}

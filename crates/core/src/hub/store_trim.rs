//! Keeps the store below its size limit: removes the oldest records when it comes near the limit.
//!
//! In: the store's signal that it needs room. Out: fewer rows. In this order, each only while the store is above its target:
//! 1. threads that hold nothing and have been idle for a minute;
//! 2. ended calls, oldest first, with their events and artifacts, and with their thread if it holds nothing else; also events and
//!    artifacts that are older than all calls;
//! 3. ended calls whose idempotency key could still be repeated, with the key;
//! 4. other threads that hold nothing;
//! 5. threads that hold nothing but evidence, the longest idle first.
//!
//! State, messages, approvals and open calls are never removed: if they alone fill the store, its limit is reached. Writers wait
//! meanwhile if the store is full (`SizeLimit::reserve`). `calls.rs`, `aged_rows.rs` and `threads.rs` remove the rows.

mod aged_rows;
mod calls;
mod threads;

use std::{sync::Weak, time::Duration};

use crate::engine::Engine;
use calls::{CallClass, CallTrim};
use threads::IdleThreads;
use toolhub_storage::backend::{SizeLimit, StoreError};
use toolhub_types::timestamp::Timestamp;

/// Delay before the next attempt if there was not enough to remove or the store failed. It doubles each time.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(5);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Minimum time between two log lines.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Removes the oldest records whenever the store needs room, until the hub is dropped.
pub(super) async fn run(hub: Weak<Engine>) {
    let (mut trimmer, mut log, mut delay) = (Trimmer::default(), TrimLog::default(), MIN_RETRY_DELAY);
    let Some(store) = hub.upgrade().map(|engine| engine.services.store.clone()) else { return };
    let Some(limit) = store.size_limit() else { return };
    let trimming = limit.start_trimming();
    loop {
        trimming.wait_until_needed(delay).await;
        let Some(engine) = hub.upgrade() else { return };
        let trimmed = trimmer.trim(&engine, limit).await;
        let has_room = matches!(trimmed, Ok(true));
        trimming.finish_pass(has_room);
        log.write(&engine, limit, trimmed);
        delay = if has_room { MIN_RETRY_DELAY } else { (2 * delay).min(MAX_RETRY_DELAY) };
    }
}

/// What is remembered from one time to the next.
#[derive(Default)]
struct Trimmer {
    calls: CallTrim,
    idle_threads: IdleThreads,
}

impl Trimmer {
    /// Removes the oldest records until the store is at its target. Returns whether it is.
    async fn trim(&mut self, engine: &Engine, limit: &SizeLimit) -> Result<bool, StoreError> {
        self.idle_threads.trim_page(engine, limit).await?;
        self.calls.trim(engine, limit, CallClass::Plain).await?;
        self.calls.trim(engine, limit, CallClass::Keyed).await?;
        threads::trim_bare(engine, limit).await?;
        threads::trim_with_evidence(engine, limit).await?;
        Ok(surplus(limit) == 0)
    }
}

/// How much must be removed.
fn surplus(limit: &SizeLimit) -> u64 {
    limit.bytes().saturating_sub(limit.target())
}

/// Logs what was removed, at most once a minute, and once when that was not enough.
#[derive(Default)]
struct TrimLog {
    last: Option<Timestamp>,
    /// Number of removed calls in the last line.
    trimmed: u64,
    has_warned: bool,
}

impl TrimLog {
    fn write(&mut self, engine: &Engine, limit: &SizeLimit, trimmed: Result<bool, StoreError>) {
        let (now, total) = (engine.services.clock.now(), engine.journal.trimmed());
        let removed = total - self.trimmed;
        if removed > 0 && self.last.is_none_or(|last| now.since(last) >= LOG_INTERVAL) {
            (self.last, self.trimmed) = (Some(now), total);
            tracing::info!(removed, limit = limit.limit(), "store near its size limit: the oldest calls were removed");
        }
        let (bytes, limit) = (limit.bytes(), limit.limit());
        match trimmed {
            Ok(true) => self.has_warned = false,
            _ if self.has_warned => {}
            Ok(false) => {
                tracing::warn!(
                    bytes,
                    limit,
                    "store near its size limit, and nothing is left to remove; raise `store.max_size`"
                );
                self.has_warned = true;
            }
            Err(error) => {
                tracing::warn!(bytes, limit, %error, "store near its size limit, and removing the oldest calls failed");
                self.has_warned = true;
            }
        }
    }
}

//! Removes the oldest ended calls, with what belongs to them.
//!
//! In: how much room is needed. Out: fewer calls, events, artifacts, claims and threads. A page is bounded by the room that is
//! needed, so that no more goes than must, and by size, because it is held in memory.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};

use super::{
    super::threads::{registered_tools, remove_bare_thread},
    aged_rows, surplus,
};
use crate::{
    artifact, artifact::ArtifactClass, engine::Engine, execution::Tool, journal, journal::CallSummary, threads,
};
use toolhub_storage::backend::{
    Backend, Batch, Change, Cursor, Durability, Expect, Partition, ROW_OVERHEAD_BYTES, Row, RowKey, RowVersion, Scan,
    Scope, SizeLimit, StoreError, Table, Write,
};
use toolhub_types::{
    content::Content,
    ids::{CallId, IdempotencyKey, Tenant, ThreadKey},
    timestamp::Timestamp,
    tool::ToolName,
};

/// Maximum number of calls on a page.
const PAGE_ROWS: usize = 1_000;
/// Limits of the size of a page.
const MIN_PAGE_BYTES: u64 = 64 * 1024;
const MAX_PAGE_BYTES: u64 = 16 * 1024 * 1024;
/// Number of concurrent removals, so that a store with group commit can group them.
const CONCURRENCY: usize = 256;
/// Maximum number of rows per batch.
const BATCH_SIZE: usize = 200;
/// An artifact that is so much older than all calls belongs to none.
const ARTIFACT_LAG: Duration = Duration::from_secs(60);
/// How often the calls with keys that were skipped are read again: a call that ran for long is recorded among older ones.
const RESTART_INTERVAL: Duration = Duration::from_secs(600);

/// Which calls may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallClass {
    /// Those without an idempotency key that can still be repeated.
    Plain,
    /// Those with one; others, too, if there are any.
    Keyed,
}

/// Where the last trim ended.
#[derive(Default)]
pub(super) struct CallTrim {
    /// The last call with a key that was skipped. The calls up to there are not read again each time.
    keyed_until: Option<Cursor>,
    /// When the calls were last read from the beginning.
    restarted: Option<Timestamp>,
}

impl CallTrim {
    /// Removes the oldest calls of a class, and the artifacts and events that are older than the calls that stay, until the store
    /// is at its target.
    pub(super) async fn trim(
        &mut self,
        engine: &Engine,
        limit: &SizeLimit,
        class: CallClass,
    ) -> Result<(), StoreError> {
        let (store, clock) = (&*engine.services.store, &engine.services.clock);
        let artifacts = match class {
            CallClass::Plain => ArtifactClass::Plain,
            CallClass::Keyed => ArtifactClass::OfKeyedCall,
        };
        if self.restarted.is_none_or(|at| clock.now().since(at) >= RESTART_INTERVAL) {
            (self.keyed_until, self.restarted) = (None, Some(clock.now()));
        }
        let mut after = self.keyed_until.clone().filter(|_| class == CallClass::Plain);
        while surplus(limit) > 0 {
            let now = clock.now();
            let max_bytes = surplus(limit).clamp(MIN_PAGE_BYTES, MAX_PAGE_BYTES) as usize;
            let scan = Scan::new(Table::Calls, Scope::All).limit(PAGE_ROWS).max_bytes(max_bytes);
            let page = store.scan(Scan { after: after.clone(), ..scan }, now).await?;
            let oldest = page.rows.first().map_or(now, |(key, row)| arrival(key, row));
            aged_rows::trim(store, limit, (Table::Artifacts, artifacts.prefix()), oldest - ARTIFACT_LAG, now).await?;
            let selected = SelectedCalls::from_page(page.rows, class, surplus(limit), now);
            // Not after calls that are removed: the record of an older call may be written later.
            after = selected.last_keyed.clone().or(after);
            let (last_arrival, is_complete) = (selected.last_arrival, selected.is_complete);
            if !selected.groups.is_empty() {
                remove(engine, selected).await?;
            }
            if let Some(last_arrival) = last_arrival {
                aged_rows::remove(store, Table::Events, last_arrival, now).await?;
            }
            if class == CallClass::Plain {
                self.keyed_until.clone_from(&after);
            }
            if page.next.is_none() && is_complete {
                break;
            }
        }
        let now = clock.now();
        aged_rows::trim(store, limit, (Table::Artifacts, artifacts.prefix()), now, now).await?;
        aged_rows::trim(store, limit, (Table::Events, ""), now, now).await
    }
}

/// Calls to remove, by partition.
struct SelectedCalls {
    groups: HashMap<Partition, CallGroup>,
    /// The last call that was skipped because of its key.
    last_keyed: Option<Cursor>,
    /// When the last call to remove arrived. Events and artifacts up to then belong to no call that stays.
    last_arrival: Option<Timestamp>,
    /// When the newest of their records was written.
    newest: Option<Timestamp>,
    /// Whether all calls of the page were looked at.
    is_complete: bool,
}

#[derive(Default)]
struct CallGroup {
    writes: Vec<Write>,
    content: Vec<Content>,
    keys: Vec<(ToolName, IdempotencyKey, CallId)>,
}

impl SelectedCalls {
    /// The first calls of a page that may go, until they take so many bytes.
    fn from_page(rows: Vec<(RowKey, Row)>, class: CallClass, bytes: u64, now: Timestamp) -> Self {
        let mut selected =
            Self { groups: HashMap::new(), last_keyed: None, last_arrival: None, newest: None, is_complete: true };
        let mut freed = 0;
        for (key, row) in rows {
            if freed >= bytes {
                selected.is_complete = false;
                break;
            }
            let record = CallSummary::of_row(&key, &row);
            if class == CallClass::Plain && record.as_ref().is_some_and(|record| record.may_be_repeated(now)) {
                selected.last_keyed = Some(Cursor(key));
                continue;
            }
            selected.last_arrival = Some(arrival(&key, &row));
            selected.newest = selected.newest.max(Some(row.created));
            // The call and its thread.
            freed += row.value.len() as u64 + ROW_OVERHEAD_BYTES;
            let RowKey { partition, table, id } = key;
            let group = selected.groups.entry(partition).or_default();
            group.writes.push(removal(table, id));
            let Some(record) = record else { continue };
            group.keys.extend(record.key.clone().map(|key| (record.tool.clone(), key, record.id)));
            for piece in record.into_content() {
                if let Content::Artifact { bytes, .. } = &piece {
                    freed += *bytes as u64;
                    group.content.push(piece);
                }
            }
        }
        selected
    }
}

/// When a call arrived. Its record is written when it ends, maybe hours later.
fn arrival(key: &RowKey, row: &Row) -> Timestamp {
    key.id.parse().map_or(row.created, |id: CallId| id.minted_at().min(row.created))
}

/// Removes the calls, and the threads that hold nothing else.
async fn remove(engine: &Engine, SelectedCalls { groups, newest, .. }: SelectedCalls) -> Result<(), StoreError> {
    let store = &*engine.services.store;
    let (tools, until) = (registered_tools(engine), newest.unwrap_or_default());
    let mut groups: Vec<(Partition, CallGroup)> = groups.into_iter().collect();
    while !groups.is_empty() {
        let now = engine.services.clock.now();
        let chunk = groups.split_off(groups.len().saturating_sub(CONCURRENCY));
        let owner = |partition: &Partition| Some(ThreadKey::new(&partition.tenant, partition.thread()?));
        let owners: Vec<ThreadKey> = chunk.iter().filter_map(|(partition, _)| owner(partition)).collect();
        let keys: Vec<RowKey> = owners.iter().map(threads::row_key).collect();
        let rows = match store.load(&keys, now).await {
            // The thread whose row is damaged stays, with the others of this chunk.
            Err(StoreError::Damaged { .. }) => Vec::new(),
            loaded => loaded?,
        };
        let mut versions: HashMap<ThreadKey, RowVersion> =
            owners.into_iter().zip(rows).filter_map(|(owner, row)| Some((owner, row?.version))).collect();
        let removals = chunk.into_iter().map(|(partition, group)| {
            let thread = owner(&partition).and_then(|owner| versions.remove_entry(&owner));
            remove_group(engine, &tools, (partition, group), thread, until)
        });
        let removals: Vec<_> = removals.collect();
        stream::iter(removals).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn remove_group(
    engine: &Engine,
    tools: &[Arc<Tool>],
    (partition, group): (Partition, CallGroup),
    thread: Option<(ThreadKey, RowVersion)>,
    until: Timestamp,
) -> Result<(), StoreError> {
    let (store, now, tenant) = (&*engine.services.store, engine.services.clock.now(), partition.tenant.clone());
    let CallGroup { mut writes, content, keys } = group;
    while writes.len() > BATCH_SIZE {
        let rest = writes.split_off(BATCH_SIZE);
        store.commit(Batch { writes, ..Batch::new(partition.clone()) }, now).await?;
        engine.journal.count_trimmed(BATCH_SIZE);
        writes = rest;
    }
    let count = writes.len();
    let is_removed = match thread {
        Some((owner, version)) => remove_bare_thread(engine, tools, (&owner, version), writes.clone(), until).await?,
        None => false,
    };
    if !is_removed {
        store.commit(Batch { writes, ..Batch::new(partition) }, now).await?;
    }
    engine.journal.count_trimmed(count);
    artifact::delete(store, &tenant, &content, now).await?;
    for (tool, key, call) in keys {
        remove_claim(engine, &tenant, (&tool, &key), call).await?;
    }
    Ok(())
}

/// Removes the claim of a removed call on its idempotency key, unless another call has claimed the key since.
async fn remove_claim(
    engine: &Engine,
    tenant: &Tenant,
    (tool, key): (&ToolName, &IdempotencyKey),
    call: CallId,
) -> Result<(), StoreError> {
    let now = engine.services.clock.now();
    let removal = match engine.journal.find_claim(tenant, tool, key, now).await {
        // What is left of it expires.
        Err(StoreError::Damaged { .. } | StoreError::NewerLayout { .. }) => return Ok(()),
        found => found?,
    };
    let Some((_, version)) = removal.filter(|(claim, _)| claim.call == call) else { return Ok(()) };
    let batch = Batch::new(journal::claim_partition(tenant, tool, key)).with(engine.journal.remove_claim(version));
    match engine.services.store.commit(batch, now).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

pub(super) fn removal(table: Table, id: smol_str::SmolStr) -> Write {
    let (expect, durability) = (Expect::Any, Durability::KillSafe);
    Write { table, id, expect, change: Change::Remove, durability }
}

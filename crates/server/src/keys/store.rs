//! The keys that were made over the API: rows in the store, all of them known here.
//!
//! In: a new key, or one to be taken back. Out: who has which. Whatever another node changes is heard of by watching; what is
//! changed here is known here before anybody is answered. A row that cannot be read opens nothing and is told to `tracing`.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use futures_util::{FutureExt, StreamExt};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use tokio::sync::{Mutex, OnceCell};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolhub_core::{
    backend::{
        Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, RowVersion, Scan, Scope as Whose,
        StoreError, Table, Watcher, Write,
    },
    clock::{Clock, SystemClock, Timestamp},
    ids::{Caller, Tenant},
    tasks::supervise,
};

use super::{KeyEntry, encoding};
use crate::scope::Scope;

const SCHEMA_VERSION: u32 = 1;
/// How soon a store that did not answer is asked again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// When a key was used last is written down so often at most.
const LAST_USED_WRITE_INTERVAL: Duration = Duration::from_secs(3600);

/// A key as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) id: SmolStr,
    pub(crate) name: Caller,
    pub(crate) tenant: Tenant,
    pub(crate) hash: String,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) created_at: Timestamp,
    pub(crate) created_by: Caller,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) last_used_at: Option<Timestamp>,
}

/// A key of the store, ready to be compared with.
#[derive(Debug)]
pub(crate) struct StoredKey {
    pub(super) entry: KeyEntry,
    pub(crate) record: Record,
    version: RowVersion,
}

/// All keys of the store.
pub(crate) struct KeyStore {
    store: Arc<dyn Backend>,
    keys: ArcSwap<HashMap<SmolStr, Arc<StoredKey>>>,
    /// Whoever reads all keys does so alone, so that an older reading never replaces a newer one.
    reload_lock: Mutex<()>,
    /// Ends the watching when nobody needs the keys any more.
    watch_guard: OnceCell<DropGuard>,
}

impl KeyStore {
    pub(crate) fn new(store: Arc<dyn Backend>) -> Arc<Self> {
        Arc::new(Self { store, keys: ArcSwap::default(), reload_lock: Mutex::default(), watch_guard: OnceCell::new() })
    }

    /// Reads the keys, the first time somebody needs them, and watches them from then on.
    ///
    /// # Errors
    /// When the store does not answer. Then nobody is let in by a key of the store.
    pub(crate) async fn ensure_loaded(self: &Arc<Self>) -> Result<(), StoreError> {
        let begin = async || {
            // Watched before they are read, so that no change falls in between.
            let changes = self.store.watch(Table::Keys);
            self.reload().await?;
            let (keys, stop, mut first) = (Arc::downgrade(self), CancellationToken::new(), Some(changes));
            let stopped = stop.clone();
            let make = move || {
                let changes = || keys.upgrade().map(|keys| keys.store.watch(Table::Keys));
                let changes = first.take().or_else(changes);
                changes
                    .map_or_else(|| async {}.boxed(), |changes| watch(keys.clone(), changes, stopped.clone()).boxed())
            };
            tokio::spawn(supervise("key watch", stop.clone(), Box::new(make)));
            Ok(stop.drop_guard())
        };
        self.watch_guard.get_or_try_init(begin).await.map(drop)
    }

    /// Whether the store has no key.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.load().is_empty()
    }

    /// The key of this id.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<StoredKey>> {
        self.keys.load().get(id).cloned()
    }

    /// Every key, by id.
    pub(crate) fn all(&self) -> Vec<Arc<StoredKey>> {
        let mut all: Vec<_> = self.keys.load().values().cloned().collect();
        all.sort_unstable_by(|one, other| one.record.id.cmp(&other.record.id));
        all
    }

    /// Keeps a key.
    pub(crate) async fn add(&self, record: &Record) -> Result<(), StoreError> {
        self.write(record, Expect::Absent).await?;
        self.reload().await
    }

    /// Takes a key back; it opens nothing from here on. Says whether there was one.
    pub(crate) async fn remove(&self, id: &str) -> Result<bool, StoreError> {
        let Some(stored) = self.get(id) else { return Ok(false) };
        let (durability, expect) = (Durability::PowerSafe, Expect::Any);
        let write = Write { table: Table::Keys, id: id.into(), expect, change: Change::Remove, durability };
        self.store.commit(Batch::new(partition(&stored.record.tenant)).with(write), SystemClock.now()).await?;
        self.reload().await?;
        Ok(true)
    }

    /// Notes that a key was used; now and then that is written down.
    pub(super) fn mark_used(self: &Arc<Self>, stored: &Arc<StoredKey>, now: Timestamp) {
        if !stored.entry.mark_used(now, LAST_USED_WRITE_INTERVAL) {
            return;
        }
        let (shelf, stored) = (self.clone(), stored.clone());
        tokio::spawn(async move {
            let record = Record { last_used_at: Some(now), ..stored.record.clone() };
            // Only where it is still the same: a key that was taken back must not come back.
            if let Err(error) = shelf.write(&record, Expect::Same(stored.version)).await {
                tracing::debug!(%error, key = %record.id, "when a key was used last could not be written down");
            }
        });
    }

    async fn write(&self, record: &Record, expect: Expect) -> Result<(), StoreError> {
        let value = serde_json::to_vec(record).map_err(|error| StoreError::Refused(error.to_string()))?;
        let change = Change::Put { value: value.into(), schema: SCHEMA_VERSION, expires: None };
        let durability = Durability::PowerSafe;
        let write = Write { table: Table::Keys, id: record.id.clone(), expect, change, durability };
        self.store.commit(Batch::new(partition(&record.tenant)).with(write), SystemClock.now()).await.map(drop)
    }

    async fn reload(&self) -> Result<(), StoreError> {
        let _alone = self.reload_lock.lock().await;
        let mut known = HashMap::new();
        let mut scan = Scan::new(Table::Keys, Whose::All).limit(500);
        loop {
            let page = self.store.scan(scan.clone(), SystemClock.now()).await?;
            for (key, row) in page.rows {
                let before = self.get(&key.id);
                match StoredKey::of(&row.value, row.schema, row.version, before.as_deref()) {
                    Some(stored) => drop(known.insert(key.id, Arc::new(stored))),
                    None => tracing::warn!(id = %key.id, "a stored key cannot be read and opens nothing"),
                }
            }
            match page.next {
                Some(next) => scan.after = Some(next),
                None => break,
            }
        }
        self.keys.store(Arc::new(known));
        Ok(())
    }
}

impl StoredKey {
    fn of(value: &[u8], layout: u32, seen: RowVersion, before: Option<&Self>) -> Option<Self> {
        if layout != SCHEMA_VERSION {
            return None;
        }
        let record: Record = serde_json::from_slice(value).ok()?;
        let held = KeyEntry::new(
            record.id.clone(),
            record.name.clone(),
            record.tenant.clone(),
            record.scopes.iter().copied().collect(),
            record.expires_at,
            encoding::parse_hash(&record.hash)?,
        );
        let last = before.and_then(|before| before.entry.last_used()).max(record.last_used_at);
        if let Some(last) = last {
            held.mark_used(last, Duration::ZERO);
        }
        Some(Self { entry: held, record, version: seen })
    }

    /// When it was used last, as far as this node knows.
    pub(crate) fn last_used(&self) -> Option<Timestamp> {
        self.entry.last_used()
    }
}

/// Reads the keys again whenever one has changed.
async fn watch(shelf: Weak<KeyStore>, mut changes: Watcher, gone: CancellationToken) {
    loop {
        tokio::select! {
            () = gone.cancelled() => return,
            change = changes.next() => if change.is_none() { return },
        }
        loop {
            let Some(shelf) = shelf.upgrade() else { return };
            match shelf.reload().await {
                Ok(()) => break,
                Err(error) => tracing::warn!(%error, "the keys could not be read again"),
            }
            drop(shelf);
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
}

fn partition(tenant: &Tenant) -> Partition {
    Partition { tenant: tenant.clone(), kind: PartitionKind::Keys }
}

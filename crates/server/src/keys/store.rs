//! Keys created through the API, and logins with keys: rows in the store, cached in memory as a whole.
//!
//! In: a key to add or to remove; logins are in `logins`. Out: the current keys. Changes by other nodes arrive through a watch; changes made
//! here are in the cache before the request is answered. An unreadable row authenticates no request and is logged. If the store does
//! not answer, keys are believed for a minute more.

mod contact;
mod logins;

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use futures_util::{FutureExt, StreamExt};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use tokio::sync::{Mutex, OnceCell, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolhub_core::{
    backend::{
        Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, Row, RowKey, RowVersion, Scan,
        Scope as ScanScope, StoreError, Table, Watcher, Write, rewatch,
    },
    clock::{Clock, Timestamp},
    ids::{Caller, Tenant},
    tasks,
};

use self::contact::Contact;
pub(super) use self::logins::{LoginRecord, id_of_secret};
use self::logins::{StoredLogin, is_login};
use super::{KeyEntry, encoding};
use crate::scope::Scope;

const SCHEMA_VERSION: u32 = 1;
/// Wait before a failed reload is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How often the time of the last use is written, at most.
const LAST_USED_WRITE_INTERVAL: Duration = Duration::from_secs(3600);
/// How many logins that are not known here are looked up in the store at a time.
const MAX_LOGIN_LOADS: usize = 4;

/// A key as it is stored.
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

/// A key of the store, with its parsed form.
#[derive(Debug)]
pub(crate) struct StoredKey {
    pub(super) entry: KeyEntry,
    pub(crate) record: Record,
    version: RowVersion,
}

/// All rows of the store, by id.
#[derive(Default)]
struct Rows {
    keys: HashMap<SmolStr, Arc<StoredKey>>,
    logins: HashMap<SmolStr, Arc<StoredLogin>>,
}

/// All keys of the store, and the logins with keys.
pub(crate) struct KeyStore {
    store: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    rows: ArcSwap<Rows>,
    contact: Contact,
    login_loads: Semaphore,
    /// Serialises reloads, so that an older result never replaces a newer one.
    reload_lock: Mutex<()>,
    /// Stops the watch when the key store is dropped.
    watch_guard: OnceCell<DropGuard>,
}

impl KeyStore {
    pub(crate) fn new(store: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            store,
            clock,
            rows: ArcSwap::default(),
            contact: Contact::default(),
            login_loads: Semaphore::new(MAX_LOGIN_LOADS),
            reload_lock: Mutex::default(),
            watch_guard: OnceCell::new(),
        })
    }

    /// Loads the keys on first use and watches them from then on.
    ///
    /// # Errors
    /// When the store is unavailable. Then no key of the store is accepted.
    pub(crate) async fn ensure_loaded(self: &Arc<Self>) -> Result<(), StoreError> {
        let load_and_watch = async || {
            // Start the watch before the load, so that no change in between is missed.
            let changes = self.store.watch(Table::Keys);
            self.reload().await?;
            let (keys, stop, mut first) = (Arc::downgrade(self), CancellationToken::new(), Some(changes));
            tasks::spawn("key watch", stop.clone(), move |stop| {
                let changes = || keys.upgrade().map(|keys| rewatch(&*keys.store, Table::Keys));
                let changes = first.take().or_else(changes);
                changes.map_or_else(|| async {}.boxed(), |changes| watch(keys.clone(), changes, stop).boxed())
            });
            Ok(stop.drop_guard())
        };
        self.watch_guard.get_or_try_init(load_and_watch).await.map(drop)
    }

    /// Whether the store has no key.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.load().keys.is_empty()
    }

    /// The key with this id, to authenticate a request.
    ///
    /// # Errors
    /// When the store has not answered for a minute: the key may have been revoked. Also for a key that is not known while keys that have
    /// changed cannot be read.
    pub(crate) async fn find(self: &Arc<Self>, id: &str) -> Result<Option<Arc<StoredKey>>, StoreError> {
        let Some(stored) = self.get(id) else { return self.contact.check_complete().map(|()| None) };
        self.confirm(vec![(stored.record.row_key(), stored.version)]).await?;
        Ok(self.get(id))
    }

    /// Makes sure that these rows may be believed: asks the store if it has said nothing for a while.
    ///
    /// # Errors
    /// When the store has not answered for a minute.
    async fn confirm(self: &Arc<Self>, rows: Vec<(RowKey, RowVersion)>) -> Result<(), StoreError> {
        if self.contact.is_recent() {
            return Ok(());
        }
        if self.contact.is_believable() {
            if !self.contact.is_asking() {
                let key_store = self.clone();
                tokio::spawn(async move { key_store.contact.renew(key_store.check(rows)).await });
            }
            return Ok(());
        }
        self.contact.renew(self.check(rows)).await
    }

    /// Reads some rows; all of them if one was changed or removed by another node and the watch has not said so.
    async fn check(&self, rows: Vec<(RowKey, RowVersion)>) -> Result<(), StoreError> {
        let (keys, versions): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let found = self.store.load(&keys, self.clock.now()).await?;
        let is_same =
            |(row, version): (&Option<Row>, &RowVersion)| row.as_ref().is_some_and(|row| row.version == *version);
        if found.iter().zip(&versions).all(is_same) { Ok(()) } else { self.reload().await }
    }

    /// The key with this id.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<StoredKey>> {
        self.rows.load().keys.get(id).cloned()
    }

    /// Every key, by id.
    pub(crate) fn all(&self) -> Vec<Arc<StoredKey>> {
        let mut all: Vec<_> = self.rows.load().keys.values().cloned().collect();
        all.sort_unstable_by(|one, other| one.record.id.cmp(&other.record.id));
        all
    }

    /// Adds a key.
    pub(crate) async fn add(&self, record: &Record) -> Result<(), StoreError> {
        self.write(record, Expect::Absent).await?;
        self.reload().await
    }

    /// Removes a key; it is refused from here on. Returns whether there was one.
    pub(crate) async fn remove(&self, id: &str) -> Result<bool, StoreError> {
        let Some(stored) = self.get(id) else { return Ok(false) };
        self.commit(stored.record.row_key(), Expect::Any, Change::Remove).await?;
        self.reload().await?;
        Ok(true)
    }

    /// Records the use of a key; writes it to the store from time to time.
    pub(super) fn mark_used(self: &Arc<Self>, stored: &Arc<StoredKey>, now: Timestamp) {
        if !stored.entry.mark_used(now, LAST_USED_WRITE_INTERVAL) {
            return;
        }
        let (key_store, stored) = (self.clone(), stored.clone());
        tokio::spawn(async move {
            let record = Record { last_used_at: Some(now), ..stored.record.clone() };
            // Only if the row is unchanged: a removed key must not come back.
            if let Err(error) = key_store.write(&record, Expect::Same(stored.version)).await {
                tracing::debug!(%error, key = %record.id, "could not write the last use of a key");
            }
        });
    }

    async fn write(&self, record: &Record, expect: Expect) -> Result<(), StoreError> {
        let value = serde_json::to_vec(record).map_err(|error| StoreError::Refused(error.to_string()))?;
        let change = Change::Put { value: value.into(), schema: SCHEMA_VERSION, expires: None };
        self.commit(record.row_key(), expect, change).await
    }

    async fn commit(
        &self,
        RowKey { partition, table, id }: RowKey,
        expect: Expect,
        change: Change,
    ) -> Result<(), StoreError> {
        let write = Write { table, id, expect, change, durability: Durability::PowerSafe };
        self.store.commit(Batch::new(partition).with(write), self.clock.now()).await.map(drop)
    }

    async fn reload(&self) -> Result<(), StoreError> {
        let _guard = self.reload_lock.lock().await;
        let (mut rows, previous) = (Rows::default(), self.rows.load_full());
        let mut scan = Scan::new(Table::Keys, ScanScope::All).limit(500);
        loop {
            let page = self.store.scan(scan.clone(), self.clock.now()).await?;
            for (key, row) in page.rows {
                if !rows.insert(&key.id, &row, &previous) {
                    tracing::warn!(id = %key.id, "stored API key or login is unreadable; ignoring it");
                }
            }
            match page.next {
                Some(next) => scan.after = Some(next),
                None => break,
            }
        }
        self.rows.store(Arc::new(rows));
        self.contact.reloaded();
        Ok(())
    }
}

impl Rows {
    /// Adds a row, with what is known of it in memory only; returns whether it is readable.
    fn insert(&mut self, id: &SmolStr, row: &Row, previous: &Self) -> bool {
        if row.schema != SCHEMA_VERSION {
            return false;
        }
        if is_login(id) {
            let login = StoredLogin::of(&row.value, row.version, previous.logins.get(id).map(|login| &**login));
            return login.map(|login| self.logins.insert(id.clone(), Arc::new(login))).is_some();
        }
        let key = StoredKey::of(&row.value, row.version, previous.keys.get(id).map(|key| &**key));
        key.map(|key| self.keys.insert(id.clone(), Arc::new(key))).is_some()
    }
}

impl Record {
    fn row_key(&self) -> RowKey {
        RowKey { partition: partition(&self.tenant), table: Table::Keys, id: self.id.clone() }
    }
}

impl StoredKey {
    fn of(value: &[u8], version: RowVersion, previous: Option<&Self>) -> Option<Self> {
        let record: Record = serde_json::from_slice(value).ok()?;
        let entry = KeyEntry::new(
            record.id.clone(),
            record.name.clone(),
            record.tenant.clone(),
            record.scopes.iter().copied().collect(),
            record.expires_at,
            encoding::parse_hash(&record.hash)?,
        );
        let last = previous.and_then(|previous| previous.entry.last_used()).max(record.last_used_at);
        if let Some(last) = last {
            entry.mark_used(last, Duration::ZERO);
        }
        Some(Self { entry, record, version })
    }

    /// When it was last used, as far as this node knows.
    pub(crate) fn last_used(&self) -> Option<Timestamp> {
        self.entry.last_used()
    }
}

/// Reloads the keys whenever one has changed.
async fn watch(key_store: Weak<KeyStore>, mut changes: Watcher, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            change = changes.next() => if change.is_none() { return },
        }
        loop {
            let Some(key_store) = key_store.upgrade() else { return };
            match key_store.reload().await {
                Ok(()) => break,
                Err(error) => {
                    key_store.contact.reload_failed();
                    tracing::warn!(%error, "reload of the API keys failed; retrying");
                }
            }
            drop(key_store);
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
}

fn partition(tenant: &Tenant) -> Partition {
    Partition { tenant: tenant.clone(), kind: PartitionKind::Keys }
}

#[cfg(test)]
mod tests;

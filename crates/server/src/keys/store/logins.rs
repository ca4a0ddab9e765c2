//! Logins of the dashboard: rows beside the keys, each of which stands for one key.
//!
//! In: a login to add, find or remove. Out: the same from memory, kept current by the watch of the keys. The id of a row is the hash of the
//! secret that the browser has, so the store cannot be used to log in. What a key permits is not stored: it is read from the key each time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};
use toolhub_core::{
    backend::{Change, Expect, RowKey, RowVersion, StoreError, Table},
    clock::Timestamp,
    digest,
    ids::Tenant,
};

use super::{super::encoding, KeyStore, partition};
use crate::scope::LoginId;

/// What the ids of the rows of logins begin with; those of keys have no colon.
const ID_PREFIX: &str = "login:";
/// How long a login lasts without a request.
const IDLE: Duration = Duration::from_secs(12 * 3600);
/// How long a login lasts.
const MAX_AGE: Duration = Duration::from_secs(7 * 86_400);
/// How often the time of the last use is written, at most.
const LAST_USED_WRITE_INTERVAL: Duration = Duration::from_secs(300);
/// Largest number of logins with one key. A further one ends the one that was not used for longest.
const MAX_PER_KEY: usize = 50;

/// A login as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoginRecord {
    pub(crate) id: LoginId,
    /// The id of its key, and the key's hash: a key of the config may be replaced by another of the same name.
    pub(crate) key: SmolStr,
    pub(crate) key_hash: String,
    pub(crate) created_at: Timestamp,
    pub(crate) last_used_at: Timestamp,
}

/// A login of the store.
#[derive(Debug)]
pub(crate) struct StoredLogin {
    pub(crate) record: LoginRecord,
    /// In milliseconds since the Unix epoch, as far as this node knows.
    last_used: AtomicI64,
    /// When this node last began to write the time of the last use.
    written: AtomicI64,
    version: RowVersion,
}

/// The id of the login with this secret.
pub(crate) fn id_of_secret(secret: &str) -> LoginId {
    LoginId(format_smolstr!("{ID_PREFIX}{}", digest::hex(&encoding::key_digest(secret))))
}

/// Whether a row with this id is a login.
pub(super) fn is_login(id: &str) -> bool {
    id.starts_with(ID_PREFIX)
}

fn row_key(id: &LoginId) -> RowKey {
    // One partition for all: a request names no tenant.
    RowKey { partition: partition(&Tenant::default()), table: Table::Keys, id: id.0.clone() }
}

impl LoginRecord {
    /// When it ends if it is not used after `used`.
    fn ends_at(&self, used: Timestamp) -> Timestamp {
        (used + IDLE).min(self.created_at + MAX_AGE)
    }
}

impl StoredLogin {
    pub(super) fn of(value: &[u8], version: RowVersion, previous: Option<&Self>) -> Option<Self> {
        let record: LoginRecord = serde_json::from_slice(value).ok()?;
        let last_used =
            previous.map_or(0, |previous| previous.last_used.load(Relaxed)).max(record.last_used_at.millis());
        let (last_used, written) = (AtomicI64::new(last_used), AtomicI64::new(record.last_used_at.millis()));
        Some(Self { record, last_used, written, version })
    }

    /// When it ends if it is not used again.
    pub(crate) fn ends_at(&self) -> Timestamp {
        self.record.ends_at(Timestamp::from_millis(self.last_used.load(Relaxed)))
    }

    pub(crate) fn is_valid(&self, now: Timestamp) -> bool {
        now < self.ends_at()
    }
}

impl KeyStore {
    /// The login with this id, if it is known here.
    pub(crate) fn login(&self, id: &LoginId) -> Option<Arc<StoredLogin>> {
        self.rows.load().logins.get(&id.0).cloned()
    }

    /// The login with this id, to authenticate a request.
    ///
    /// # Errors
    /// As for a key.
    pub(crate) async fn find_login(self: &Arc<Self>, id: &LoginId) -> Result<Option<Arc<StoredLogin>>, StoreError> {
        let login = match self.login(id) {
            Some(login) => login,
            // The next request of a browser may reach another node before the watch has told of the login.
            None => match self.load_login(id).await? {
                Some(login) => login,
                None => return self.contact.check_complete().map(|()| None),
            },
        };
        let mut rows = vec![(row_key(id), login.version)];
        rows.extend(self.get(&login.record.key).map(|key| (key.record.row_key(), key.version)));
        self.confirm(rows).await?;
        Ok(self.login(id))
    }

    /// Reads a login that is not known here. A few at a time: anyone can send secrets that do not exist.
    async fn load_login(&self, id: &LoginId) -> Result<Option<Arc<StoredLogin>>, StoreError> {
        let Ok(_permit) = self.login_loads.try_acquire() else { return Ok(None) };
        let row = self.store.load(&[row_key(id)], self.clock.now()).await?.pop().flatten();
        if row.is_some() {
            self.reload().await?;
        }
        Ok(self.login(id))
    }

    /// Adds a login with the key of this id and hash.
    pub(crate) async fn add_login(&self, id: LoginId, key: SmolStr, key_hash: String) -> Result<(), StoreError> {
        let now = self.clock.now();
        let mut others: Vec<_> =
            self.rows.load().logins.values().filter(|login| login.record.key == key).cloned().collect();
        others.sort_unstable_by_key(|login| std::cmp::Reverse(login.last_used.load(Relaxed)));
        for login in others.iter().skip(MAX_PER_KEY - 1) {
            self.commit(row_key(&login.record.id), Expect::Any, Change::Remove).await?;
        }
        self.write_login(&LoginRecord { id, key, key_hash, created_at: now, last_used_at: now }, Expect::Absent)
            .await?;
        self.reload().await
    }

    /// Ends a login.
    pub(crate) async fn remove_login(&self, id: &LoginId) -> Result<(), StoreError> {
        self.commit(row_key(id), Expect::Any, Change::Remove).await?;
        self.reload().await
    }

    /// Records the use of a login; writes it to the store from time to time.
    pub(crate) fn mark_login_used(self: &Arc<Self>, login: &Arc<StoredLogin>, now: Timestamp) {
        login.last_used.fetch_max(now.millis(), Relaxed);
        let is_due = |written: i64| now.since(Timestamp::from_millis(written)) >= LAST_USED_WRITE_INTERVAL;
        let begin = |written: i64| is_due(written).then_some(now.millis());
        if login.written.fetch_update(Relaxed, Relaxed, begin).is_err() {
            return;
        }
        let (key_store, login) = (self.clone(), login.clone());
        tokio::spawn(async move {
            let record = LoginRecord { last_used_at: now, ..login.record.clone() };
            // Only if the row is unchanged: a login that has ended must not come back.
            if let Err(error) = key_store.write_login(&record, Expect::Same(login.version)).await {
                tracing::debug!(%error, "could not write the last use of a login");
            }
        });
    }

    async fn write_login(&self, record: &LoginRecord, expect: Expect) -> Result<(), StoreError> {
        let value = serde_json::to_vec(record).map_err(|error| StoreError::Refused(error.to_string()))?;
        let expires = Some(record.ends_at(record.last_used_at));
        let change = Change::Put { value: value.into(), schema: super::SCHEMA_VERSION, expires };
        self.commit(row_key(&record.id), expect, change).await
    }
}

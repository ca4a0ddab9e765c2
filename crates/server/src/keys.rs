//! API keys: authenticates a request by its key.
//!
//! In: the keys of the config, those in the store, and the key that a request sends. Out: the principal of the key, if
//! it is valid. All keys are held in memory; which scope a route needs is decided elsewhere (`auth`).

mod encoding;
mod expiry;
mod login;
mod store;

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use smol_str::SmolStr;
use subtle::ConstantTimeEq;
use toolhub_core::{
    backend::{Backend, StoreError},
    clock::{Clock, Timestamp},
    ids::{Caller, Tenant},
};

use crate::{
    scope::{Principal, Scope, Scopes},
    settings::{Auth, KeySetting, Settings},
};
pub use encoding::NewKey;
pub(crate) use encoding::random_text;
pub(crate) use expiry::watch as watch_expiry;
pub(crate) use store::{KeyStore, Record};

/// Why a key of the config is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Two keys have the same name.
    #[error("two keys are named `{0}`; records and limits could not tell them apart")]
    DuplicateName(String),
    /// Two keys have the same hash.
    #[error("the keys `{0}` and `{1}` have the same hash; create one for each with `toolhub keys create`")]
    DuplicateHash(String, String),
    /// The hash of this key is malformed.
    #[error("the hash of the key `{0}` is not `sha256:` and 64 hexadecimal digits; `toolhub keys create` prints it")]
    InvalidHash(String),
    /// The name or the tenant of this key is malformed.
    #[error("invalid key `{0}`: {1}")]
    InvalidIdentity(String, String),
}

/// A key in memory.
#[derive(Debug)]
pub(crate) struct KeyEntry {
    pub(crate) id: SmolStr,
    pub(crate) name: Caller,
    pub(crate) tenant: Tenant,
    pub(crate) scopes: Scopes,
    pub(crate) expires: Option<Timestamp>,
    digest: encoding::Digest,
    /// In milliseconds since the Unix epoch; 0 if it was never used.
    last_used: AtomicI64,
}

/// All keys.
pub(crate) struct Keys {
    /// Keys of the config: few, replaced as a whole at a reload.
    config_keys: ArcSwap<Vec<KeyEntry>>,
    config_errors: Vec<KeyError>,
    /// Keys of the store.
    key_store: Arc<KeyStore>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("config_keys", &self.config_keys.load().len()).finish_non_exhaustive()
    }
}

impl Keys {
    pub(crate) fn new(settings: &Settings, store: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Self {
        let config: &[KeySetting] = if let Auth::Keys(keys) = &settings.auth { keys } else { &[] };
        let (entries, errors) = parse_config_keys(config);
        let key_store = KeyStore::new(store, clock.clone());
        Self { config_keys: ArcSwap::from_pointee(entries), config_errors: errors, key_store, clock }
    }

    /// Replaces the keys of the config; effective from the next request on.
    fn replace(&self, settings: &[KeySetting]) -> Result<(), Vec<KeyError>> {
        let (entries, errors) = parse_config_keys(settings);
        if !errors.is_empty() {
            return Err(errors);
        }
        // A key that stays keeps the time of its last use.
        for (old, new) in self.config_keys.load().iter().flat_map(|old| entries.iter().map(move |new| (old, new))) {
            if old.digest == new.digest {
                new.last_used.store(old.last_used.load(Relaxed), Relaxed);
            }
        }
        self.config_keys.store(Arc::new(entries));
        if !self.has_admin_key(None, self.clock.now()) {
            tracing::warn!(
                "no key with the scope `admin` is left: keys, config and backups cannot be managed through the API. Add such \
                 a key to the config and reload with SIGHUP, or restart"
            );
        }
        Ok(())
    }

    /// The errors in the keys of the config.
    pub(crate) fn config_errors(&self) -> &[KeyError] {
        &self.config_errors
    }

    /// Keys of the config.
    pub(crate) fn config_keys(&self) -> Arc<Vec<KeyEntry>> {
        self.config_keys.load_full()
    }

    /// Keys of the store; loads them on first use.
    ///
    /// # Errors
    /// When the store is unavailable.
    pub(crate) async fn key_store(&self) -> Result<&Arc<KeyStore>, StoreError> {
        self.key_store.ensure_loaded().await?;
        Ok(&self.key_store)
    }

    /// Whether there is no key, among those loaded so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.config_keys.load().is_empty() && self.key_store.is_empty()
    }

    /// Whether any other key than `without` has the scope `admin`, among those loaded so far.
    pub(crate) fn has_admin_key(&self, without: Option<&str>, now: Timestamp) -> bool {
        let is_admin = |entry: &KeyEntry| {
            without != Some(&entry.id)
                && entry.principal(now).is_some_and(|principal| principal.has_scope(Scope::Admin))
        };
        self.config_keys.load().iter().any(is_admin)
            || self.key_store.all().iter().any(|stored| is_admin(&stored.entry))
    }

    /// The principal of a key, if the key is valid.
    ///
    /// # Errors
    /// When the store is unavailable and the key is not in the config.
    pub(crate) async fn find(&self, key: &str, now: Timestamp) -> Result<Option<Principal>, StoreError> {
        let Some(id) = encoding::key_id(key) else { return Ok(None) };
        let digest = encoding::key_digest(key);
        // Digests are compared in constant time, so that the duration reveals nothing about them.
        let same = |entry: &KeyEntry| bool::from(entry.digest.ct_eq(&digest));
        if let Some(entry) = self.config_keys.load().iter().find(|entry| same(entry)) {
            entry.mark_used(now, Duration::ZERO);
            return Ok(entry.principal(now));
        }
        let key_store = self.key_store().await?;
        let stored = key_store.find(id).await?.filter(|stored| same(&stored.entry));
        let found = stored.as_ref().and_then(|stored| stored.entry.principal(now));
        if let (Some(stored), true) = (&stored, found.is_some()) {
            key_store.mark_used(stored, now);
        }
        Ok(found)
    }

    /// Whether a principal still has a valid key with the same scopes, and its login has not ended.
    pub(crate) fn is_still_valid(&self, principal: &Principal, now: Timestamp) -> bool {
        if let Some(login) = &principal.login {
            return self.is_login_valid(login, principal, now);
        }
        let same = |entry: &KeyEntry| entry.principal(now).is_some_and(|current| current.has_same_rights(principal));
        self.config_keys.load().iter().any(same) || self.key_store.all().iter().any(|stored| same(&stored.entry))
    }
}

/// Parses the keys of a config; returns the valid ones, and all errors.
fn parse_config_keys(settings: &[KeySetting]) -> (Vec<KeyEntry>, Vec<KeyError>) {
    let (mut names, mut keys, mut errors) = (HashSet::new(), Vec::<KeyEntry>::new(), Vec::new());
    for setting in settings {
        if !names.insert(&setting.name) {
            errors.push(KeyError::DuplicateName(setting.name.clone()));
        }
        match KeyEntry::of(setting) {
            Err(error) => errors.push(error),
            Ok(entry) => match keys.iter().find(|other| other.digest == entry.digest) {
                Some(other) => errors.push(KeyError::DuplicateHash(other.name.to_string(), setting.name.clone())),
                None => keys.push(entry),
            },
        }
    }
    (keys, errors)
}

/// Replaces the keys of the config while the server runs.
#[derive(Debug, Clone)]
pub struct KeyRing(Arc<Keys>);

impl KeyRing {
    pub(crate) fn new(keys: Arc<Keys>) -> Self {
        Self(keys)
    }

    /// Replaces all keys of the config: a key that is missing is refused from the next request on. Keys created through
    /// the API stay.
    ///
    /// # Errors
    /// All errors in the keys; then nothing changes.
    pub fn replace(&self, keys: &[KeySetting]) -> Result<(), Vec<KeyError>> {
        self.0.replace(keys)
    }
}

impl KeyEntry {
    fn new(
        id: SmolStr,
        name: Caller,
        tenant: Tenant,
        scopes: Scopes,
        expires: Option<Timestamp>,
        digest: encoding::Digest,
    ) -> Self {
        Self { id, name, tenant, scopes, expires, digest, last_used: AtomicI64::new(0) }
    }

    fn of(setting: &KeySetting) -> Result<Self, KeyError> {
        let invalid_identity =
            |why: toolhub_core::ids::IdError| KeyError::InvalidIdentity(setting.name.clone(), why.to_string());
        Ok(Self::new(
            smol_str::format_smolstr!("config:{}", setting.name),
            Caller::new(setting.name.as_str()).map_err(invalid_identity)?,
            Tenant::new(setting.tenant.as_str()).map_err(invalid_identity)?,
            setting.scopes.iter().copied().collect(),
            setting.expires.map(Timestamp::from_millis),
            encoding::parse_hash(&setting.hash).ok_or_else(|| KeyError::InvalidHash(setting.name.clone()))?,
        ))
    }

    /// Records the use of the key, to the minute; returns whether the last recorded use is longer ago than `interval`.
    fn mark_used(&self, now: Timestamp, interval: Duration) -> bool {
        const MINUTE: Duration = Duration::from_secs(60);
        let last = Timestamp::from_millis(self.last_used.load(Relaxed));
        if now.since(last) < MINUTE {
            return false;
        }
        let before = self.last_used.swap(now.millis(), Relaxed);
        now.since(Timestamp::from_millis(before)) > interval
    }

    /// When it was last used, as far as this node knows.
    pub(crate) fn last_used(&self) -> Option<Timestamp> {
        let last = self.last_used.load(Relaxed);
        (last > 0).then(|| Timestamp::from_millis(last))
    }

    fn principal(&self, now: Timestamp) -> Option<Principal> {
        let is_valid = self.expires.is_none_or(|expiry| now < expiry);
        let principal =
            || Principal { tenant: self.tenant.clone(), caller: self.name.clone(), scopes: self.scopes, login: None };
        is_valid.then(principal)
    }
}

//! Keys: who somebody is, by a secret only they have.
//!
//! In: the keys of the config, those in the store, and what a request sends. Out: the principal a key stands for, or
//! nobody. All keys are known in memory; which route asks for which scope is not known here.

mod encoding;
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
    clock::{Clock, SystemClock, Timestamp},
    ids::{Caller, Tenant},
};

use crate::{
    scope::{Principal, Scope, Scopes},
    settings::{Auth, KeySetting, Settings},
};
pub use encoding::NewKey;
pub(crate) use store::{KeyStore, Record};

/// Why a key of the config cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Two keys have this name.
    #[error("two keys are named `{0}`; records and limits could not tell them apart")]
    DuplicateName(String),
    /// Two names have this one key.
    #[error("the keys `{0}` and `{1}` have the same hash; make one for each with `toolhub keys create`")]
    DuplicateHash(String, String),
    /// The hash of this key is not one.
    #[error("the hash of the key `{0}` is not `sha256:` and 64 hexadecimal digits; `toolhub keys create` prints it")]
    InvalidHash(String),
    /// The name or the tenant of this key is not legal.
    #[error("the key `{0}` cannot be used: {1}")]
    InvalidIdentity(String, String),
}

/// A key, as far as it is known here.
#[derive(Debug)]
pub(crate) struct KeyEntry {
    pub(crate) id: SmolStr,
    pub(crate) name: Caller,
    pub(crate) tenant: Tenant,
    pub(crate) scopes: Scopes,
    pub(crate) expires: Option<Timestamp>,
    digest: encoding::Digest,
    /// In milliseconds since 1970; 0 where it never was.
    last_used: AtomicI64,
}

/// All keys.
pub(crate) struct Keys {
    /// Those of the config: few, and all others when it is read again.
    config_keys: ArcSwap<Vec<KeyEntry>>,
    config_errors: Vec<KeyError>,
    /// Those of the store.
    key_store: Arc<KeyStore>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("fixed", &self.config_keys.load().len()).finish_non_exhaustive()
    }
}

impl Keys {
    pub(crate) fn new(settings: &Settings, store: Arc<dyn Backend>) -> Self {
        let said = if let Auth::Keys(said) = &settings.auth { said.as_slice() } else { &[] };
        let (fixed, wrong) = parse_config_keys(said);
        Self { config_keys: ArcSwap::from_pointee(fixed), config_errors: wrong, key_store: KeyStore::new(store) }
    }

    /// Puts these keys of the config in the place of those it had; at once, for the next request.
    fn replace(&self, said: &[KeySetting]) -> Result<(), Vec<KeyError>> {
        let (fixed, wrong) = parse_config_keys(said);
        if !wrong.is_empty() {
            return Err(wrong);
        }
        // A key that stays keeps what is known of its use.
        for (old, new) in self.config_keys.load().iter().flat_map(|old| fixed.iter().map(move |new| (old, new))) {
            if old.digest == new.digest {
                new.last_used.store(old.last_used.load(Relaxed), Relaxed);
            }
        }
        self.config_keys.store(Arc::new(fixed));
        if !self.has_admin_key(None, SystemClock.now()) {
            tracing::warn!(
                "no key has the scope `admin` any more: keys, config and backups can be reached by nobody over the API. Add such a \
                 key to the config and reload with SIGHUP, or restart"
            );
        }
        Ok(())
    }

    /// What is wrong with the keys of the config.
    pub(crate) fn config_errors(&self) -> &[KeyError] {
        &self.config_errors
    }

    /// Those of the config.
    pub(crate) fn config_keys(&self) -> Arc<Vec<KeyEntry>> {
        self.config_keys.load_full()
    }

    /// Those of the store, once they are read.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn key_store(&self) -> Result<&Arc<KeyStore>, StoreError> {
        self.key_store.ensure_loaded().await?;
        Ok(&self.key_store)
    }

    /// Whether nobody has a key, as far as they were read.
    pub(crate) fn is_empty(&self) -> bool {
        self.config_keys.load().is_empty() && self.key_store.is_empty()
    }

    /// Whether somebody would have a key with the scope `admin`, without this one; as far as they were read.
    pub(crate) fn has_admin_key(&self, without: Option<&str>, now: Timestamp) -> bool {
        let may = |held: &KeyEntry| {
            without != Some(&held.id) && held.principal(now).is_some_and(|who| who.has_scope(Scope::Admin))
        };
        self.config_keys.load().iter().any(may) || self.key_store.all().iter().any(|stored| may(&stored.entry))
    }

    /// Whom a key stands for, while it holds.
    ///
    /// # Errors
    /// When the store does not answer, and the key is none of the config's.
    pub(crate) async fn find(&self, key: &str, now: Timestamp) -> Result<Option<Principal>, StoreError> {
        let Some(id) = encoding::key_id(key) else { return Ok(None) };
        let digest = encoding::key_digest(key);
        // Every digest is compared as a whole, so that the time tells nothing about any of them.
        let same = |held: &KeyEntry| bool::from(held.digest.ct_eq(&digest));
        if let Some(held) = self.config_keys.load().iter().find(|held| same(held)) {
            held.mark_used(now, Duration::ZERO);
            return Ok(held.principal(now));
        }
        let shelf = self.key_store().await?;
        let stored = shelf.get(id).filter(|stored| same(&stored.entry));
        let found = stored.as_ref().and_then(|stored| stored.entry.principal(now));
        if let (Some(stored), true) = (&stored, found.is_some()) {
            shelf.mark_used(stored, now);
        }
        Ok(found)
    }

    /// Whether somebody who came in by a key still has it, with all that it allowed.
    pub(crate) fn is_still_valid(&self, who: &Principal, now: Timestamp) -> bool {
        let same = |held: &KeyEntry| held.principal(now).as_ref() == Some(who);
        self.config_keys.load().iter().any(same) || self.key_store.all().iter().any(|stored| same(&stored.entry))
    }
}

/// The keys of a config, and what is wrong with them.
fn parse_config_keys(said: &[KeySetting]) -> (Vec<KeyEntry>, Vec<KeyError>) {
    let (mut names, mut keys, mut wrong) = (HashSet::new(), Vec::<KeyEntry>::new(), Vec::new());
    for setting in said {
        if !names.insert(&setting.name) {
            wrong.push(KeyError::DuplicateName(setting.name.clone()));
        }
        match KeyEntry::of(setting) {
            Err(flaw) => wrong.push(flaw),
            Ok(held) => match keys.iter().find(|other| other.digest == held.digest) {
                Some(other) => wrong.push(KeyError::DuplicateHash(other.name.to_string(), setting.name.clone())),
                None => keys.push(held),
            },
        }
    }
    (keys, wrong)
}

/// The keys that stand in the config, for whoever reads it again while the server runs.
#[derive(Debug, Clone)]
pub struct KeyRing(Arc<Keys>);

impl KeyRing {
    pub(crate) fn new(keys: Arc<Keys>) -> Self {
        Self(keys)
    }

    /// Puts these in the place of all that the config had: a key that is missing is refused from the next request on. Keys that
    /// were made over the API stay.
    ///
    /// # Errors
    /// What is wrong with them, all of it; then nothing changes.
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
        let not_legal =
            |why: toolhub_core::ids::IdError| KeyError::InvalidIdentity(setting.name.clone(), why.to_string());
        Ok(Self::new(
            smol_str::format_smolstr!("config:{}", setting.name),
            Caller::new(setting.name.as_str()).map_err(not_legal)?,
            Tenant::new(setting.tenant.as_str()).map_err(not_legal)?,
            setting.scopes.iter().copied().collect(),
            setting.expires.map(Timestamp::from_millis),
            encoding::parse_hash(&setting.hash).ok_or_else(|| KeyError::InvalidHash(setting.name.clone()))?,
        ))
    }

    /// Notes that it was used, to the minute; says whether it was not for this long.
    fn mark_used(&self, now: Timestamp, long: Duration) -> bool {
        const MINUTE: Duration = Duration::from_secs(60);
        let last = Timestamp::from_millis(self.last_used.load(Relaxed));
        if now.since(last) < MINUTE {
            return false;
        }
        let before = self.last_used.swap(now.millis(), Relaxed);
        now.since(Timestamp::from_millis(before)) > long
    }

    /// When it was used last, as far as this node knows.
    pub(crate) fn last_used(&self) -> Option<Timestamp> {
        let last = self.last_used.load(Relaxed);
        (last > 0).then(|| Timestamp::from_millis(last))
    }

    fn principal(&self, now: Timestamp) -> Option<Principal> {
        let holds = self.expires.is_none_or(|end| now < end);
        holds.then(|| Principal { tenant: self.tenant.clone(), caller: self.name.clone(), scopes: self.scopes })
    }
}

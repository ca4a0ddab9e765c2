//! Keys: who somebody is, by a secret only they have.
//!
//! In: the keys of the config, those in the store, and what a request sends. Out: the principal a key stands for, or
//! nobody. All keys are known in memory; which route asks for which scope is not known here.

mod shelf;
mod text;

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
pub(crate) use shelf::{Record, Shelf};
pub use text::NewKey;

/// Why a key of the config cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Two keys have this name.
    #[error("two keys are named `{0}`; records and limits could not tell them apart")]
    DoubleName(String),
    /// Two names have this one key.
    #[error("the keys `{0}` and `{1}` have the same hash; make one for each with `toolhub keys create`")]
    DoubleHash(String, String),
    /// The hash of this key is not one.
    #[error("the hash of the key `{0}` is not `sha256:` and 64 hexadecimal digits; `toolhub keys create` prints it")]
    NotAHash(String),
    /// The name or the tenant of this key is not legal.
    #[error("the key `{0}` cannot be used: {1}")]
    NotLegal(String, String),
}

/// A key, as far as it is known here.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) id: SmolStr,
    pub(crate) name: Caller,
    pub(crate) tenant: Tenant,
    pub(crate) scopes: Scopes,
    pub(crate) expires: Option<Timestamp>,
    digest: text::Digest,
    /// In milliseconds since 1970; 0 where it never was.
    last_used: AtomicI64,
}

/// All keys.
pub(crate) struct Keys {
    /// Those of the config: few, and all others when it is read again.
    fixed: ArcSwap<Vec<Held>>,
    wrong: Vec<KeyError>,
    /// Those of the store.
    shelf: Arc<Shelf>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("fixed", &self.fixed.load().len()).finish_non_exhaustive()
    }
}

impl Keys {
    pub(crate) fn new(settings: &Settings, store: Arc<dyn Backend>) -> Self {
        let said = if let Auth::Keys(said) = &settings.auth { said.as_slice() } else { &[] };
        let (fixed, wrong) = held(said);
        Self { fixed: ArcSwap::from_pointee(fixed), wrong, shelf: Shelf::new(store) }
    }

    /// Puts these keys of the config in the place of those it had; at once, for the next request.
    fn replace(&self, said: &[KeySetting]) -> Result<(), Vec<KeyError>> {
        let (fixed, wrong) = held(said);
        if !wrong.is_empty() {
            return Err(wrong);
        }
        // A key that stays keeps what is known of its use.
        for (old, new) in self.fixed.load().iter().flat_map(|old| fixed.iter().map(move |new| (old, new))) {
            if old.digest == new.digest {
                new.last_used.store(old.last_used.load(Relaxed), Relaxed);
            }
        }
        self.fixed.store(Arc::new(fixed));
        if !self.somebody_may_administer(None, SystemClock.now()) {
            tracing::warn!(
                "no key has the scope `admin` any more: keys, config and backups can be reached by nobody over the API. Add such a \
                 key to the config and reload with SIGHUP, or restart"
            );
        }
        Ok(())
    }

    /// What is wrong with the keys of the config.
    pub(crate) fn wrong(&self) -> &[KeyError] {
        &self.wrong
    }

    /// Those of the config.
    pub(crate) fn fixed(&self) -> Arc<Vec<Held>> {
        self.fixed.load_full()
    }

    /// Those of the store, once they are read.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn shelf(&self) -> Result<&Arc<Shelf>, StoreError> {
        self.shelf.ready().await?;
        Ok(&self.shelf)
    }

    /// Whether nobody has a key, as far as they were read.
    pub(crate) fn is_empty(&self) -> bool {
        self.fixed.load().is_empty() && self.shelf.is_empty()
    }

    /// Whether somebody would have a key with the scope `admin`, without this one; as far as they were read.
    pub(crate) fn somebody_may_administer(&self, without: Option<&str>, now: Timestamp) -> bool {
        let may =
            |held: &Held| without != Some(&held.id) && held.principal(now).is_some_and(|who| who.may(Scope::Admin));
        self.fixed.load().iter().any(may) || self.shelf.all().iter().any(|stored| may(&stored.held))
    }

    /// Whom a key stands for, while it holds.
    ///
    /// # Errors
    /// When the store does not answer, and the key is none of the config's.
    pub(crate) async fn find(&self, key: &str, now: Timestamp) -> Result<Option<Principal>, StoreError> {
        let Some(id) = text::id_of(key) else { return Ok(None) };
        let digest = text::digest(key);
        // Every digest is compared as a whole, so that the time tells nothing about any of them.
        let same = |held: &Held| bool::from(held.digest.ct_eq(&digest));
        if let Some(held) = self.fixed.load().iter().find(|held| same(held)) {
            held.used(now, Duration::ZERO);
            return Ok(held.principal(now));
        }
        let shelf = self.shelf().await?;
        let stored = shelf.get(id).filter(|stored| same(&stored.held));
        let found = stored.as_ref().and_then(|stored| stored.held.principal(now));
        if let (Some(stored), true) = (&stored, found.is_some()) {
            shelf.used(stored, now);
        }
        Ok(found)
    }

    /// Whether somebody who came in by a key still has it, with all that it allowed.
    pub(crate) fn still(&self, who: &Principal, now: Timestamp) -> bool {
        let same = |held: &Held| held.principal(now).as_ref() == Some(who);
        self.fixed.load().iter().any(same) || self.shelf.all().iter().any(|stored| same(&stored.held))
    }
}

/// The keys of a config, and what is wrong with them.
fn held(said: &[KeySetting]) -> (Vec<Held>, Vec<KeyError>) {
    let (mut names, mut keys, mut wrong) = (HashSet::new(), Vec::<Held>::new(), Vec::new());
    for setting in said {
        if !names.insert(&setting.name) {
            wrong.push(KeyError::DoubleName(setting.name.clone()));
        }
        match Held::of(setting) {
            Err(flaw) => wrong.push(flaw),
            Ok(held) => match keys.iter().find(|other| other.digest == held.digest) {
                Some(other) => wrong.push(KeyError::DoubleHash(other.name.to_string(), setting.name.clone())),
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

impl Held {
    fn new(
        id: SmolStr,
        name: Caller,
        tenant: Tenant,
        scopes: Scopes,
        expires: Option<Timestamp>,
        digest: text::Digest,
    ) -> Self {
        Self { id, name, tenant, scopes, expires, digest, last_used: AtomicI64::new(0) }
    }

    fn of(setting: &KeySetting) -> Result<Self, KeyError> {
        let not_legal = |why: toolhub_core::ids::IdError| KeyError::NotLegal(setting.name.clone(), why.to_string());
        Ok(Self::new(
            smol_str::format_smolstr!("config:{}", setting.name),
            Caller::new(setting.name.as_str()).map_err(not_legal)?,
            Tenant::new(setting.tenant.as_str()).map_err(not_legal)?,
            setting.scopes.iter().copied().collect(),
            setting.expires.map(Timestamp::from_millis),
            text::read(&setting.hash).ok_or_else(|| KeyError::NotAHash(setting.name.clone()))?,
        ))
    }

    /// Notes that it was used, to the minute; says whether it was not for this long.
    fn used(&self, now: Timestamp, long: Duration) -> bool {
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

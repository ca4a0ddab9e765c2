//! Keys: who somebody is, by a secret only they have.
//!
//! In: the keys of the config, those in the store, and what a request sends. Out: the principal a key stands for, or
//! nobody. All keys are known in memory; which route asks for which scope is not known here.

mod text;

use std::collections::HashSet;

use smol_str::SmolStr;
use subtle::ConstantTimeEq;
use toolhub_core::{
    clock::Timestamp,
    ids::{Caller, Tenant},
};

use crate::{
    scope::{Principal, Scopes},
    settings::{Auth, KeySetting, Settings},
};
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
}

/// All keys.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// Those of the config: few, and for as long as the server lives.
    fixed: Vec<Held>,
    wrong: Vec<KeyError>,
}

impl Keys {
    pub(crate) fn new(settings: &Settings) -> Self {
        let Auth::Keys(said) = &settings.auth else { return Self::default() };
        let mut keys = Self::default();
        let mut names = HashSet::new();
        for setting in said {
            if !names.insert(&setting.name) {
                keys.wrong.push(KeyError::DoubleName(setting.name.clone()));
            }
            match Held::of(setting) {
                Err(wrong) => keys.wrong.push(wrong),
                Ok(held) => match keys.fixed.iter().find(|other| other.digest == held.digest) {
                    Some(other) => {
                        keys.wrong.push(KeyError::DoubleHash(other.name.to_string(), setting.name.clone()));
                    }
                    None => keys.fixed.push(held),
                },
            }
        }
        keys
    }

    /// What is wrong with the keys of the config.
    pub(crate) fn wrong(&self) -> &[KeyError] {
        &self.wrong
    }

    /// Whether nobody has a key.
    pub(crate) fn is_empty(&self) -> bool {
        self.fixed.is_empty()
    }

    /// Whom a key stands for, while it holds.
    pub(crate) fn find(&self, key: &str, now: Timestamp) -> Option<Principal> {
        text::id_of(key)?;
        let digest = text::digest(key);
        // Every digest is compared as a whole, so that the time tells nothing about any of them.
        let held = self.fixed.iter().find(|held| bool::from(held.digest.ct_eq(&digest)))?;
        held.principal(now)
    }
}

impl Held {
    fn of(setting: &KeySetting) -> Result<Self, KeyError> {
        let not_legal = |why: toolhub_core::ids::IdError| KeyError::NotLegal(setting.name.clone(), why.to_string());
        Ok(Self {
            id: smol_str::format_smolstr!("config:{}", setting.name),
            name: Caller::new(setting.name.as_str()).map_err(not_legal)?,
            tenant: Tenant::new(setting.tenant.as_str()).map_err(not_legal)?,
            scopes: setting.scopes.iter().copied().collect(),
            expires: setting.expires.map(Timestamp::from_millis),
            digest: text::read(&setting.hash).ok_or_else(|| KeyError::NotAHash(setting.name.clone()))?,
        })
    }

    fn principal(&self, now: Timestamp) -> Option<Principal> {
        let holds = self.expires.is_none_or(|end| now < end);
        holds.then(|| Principal { tenant: self.tenant.clone(), caller: self.name.clone(), scopes: self.scopes })
    }
}

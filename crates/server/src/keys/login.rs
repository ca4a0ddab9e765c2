//! Authenticates a request by a login of the dashboard instead of a key.
//!
//! In: a key that a person typed, or the secret of a login. Out: a new secret, or the principal of the login's key. A login permits what its
//! key permits at that moment, and ends with it.

use subtle::ConstantTimeEq;
use toolhub_core::{backend::StoreError, clock::Timestamp};

use super::{
    KeyEntry, Keys, encoding,
    store::{LoginRecord, id_of_secret},
};
use crate::scope::{LoginId, Principal};

/// What the secrets of logins begin with.
const PREFIX: &str = "thl_";
/// 62^43 is more than 2^256.
const SECRET_LEN: usize = 43;

impl Keys {
    /// Logs in with a key. Returns the secret of the login and the principal, or nothing if the key is not valid.
    ///
    /// # Errors
    /// When the store does not answer, or the operating system has no random bytes.
    pub(crate) async fn log_in(&self, key: &str, now: Timestamp) -> Result<Option<(String, Principal)>, StoreError> {
        let Some(principal) = self.find(key, now).await? else { return Ok(None) };
        let digest = encoding::key_digest(key);
        let same = |entry: &KeyEntry| bool::from(entry.digest.ct_eq(&digest)).then(|| entry.id.clone());
        let Some(id) = self.find_entry(same) else { return Ok(None) };
        let random = encoding::random_text(SECRET_LEN).map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let secret = format!("{PREFIX}{random}");
        let login = id_of_secret(&secret);
        self.key_store().await?.add_login(login.clone(), id, encoding::format_hash(&digest)).await?;
        Ok(Some((secret, Principal { login: Some(login), ..principal })))
    }

    /// The principal of a login, if it and its key are valid.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn find_login(&self, secret: &str, now: Timestamp) -> Result<Option<Principal>, StoreError> {
        if !secret.starts_with(PREFIX) || secret.len() != PREFIX.len() + SECRET_LEN {
            return Ok(None);
        }
        let key_store = self.key_store().await?;
        let Some(login) = key_store.find_login(&id_of_secret(secret)).await? else { return Ok(None) };
        let principal = login.is_valid(now).then(|| self.principal_of_login(&login.record, now)).flatten();
        if principal.is_some() {
            key_store.mark_login_used(&login, now);
        }
        Ok(principal.map(|principal| Principal { login: Some(login.record.id.clone()), ..principal }))
    }

    /// Ends a login; it is refused from here on.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn log_out(&self, login: &LoginId) -> Result<(), StoreError> {
        self.key_store().await?.remove_login(login).await
    }

    /// When the login or key of a principal ends, if it does: that of a login if it is not used again.
    pub(crate) fn ends_at(&self, principal: &Principal) -> Option<Timestamp> {
        let login = principal.login.as_ref().and_then(|id| self.key_store.login(id));
        let of_key = self.find_entry(|entry| (entry.name == principal.caller).then_some(entry.expires)).flatten();
        login.map(|login| login.ends_at()).into_iter().chain(of_key).min()
    }

    /// Whether a login is valid and its key still makes it this principal.
    pub(super) fn is_login_valid(&self, id: &LoginId, principal: &Principal, now: Timestamp) -> bool {
        let login = self.key_store.login(id).filter(|login| login.is_valid(now));
        let current = login.and_then(|login| self.principal_of_login(&login.record, now));
        current.is_some_and(|current| current.has_same_rights(principal))
    }

    fn principal_of_login(&self, record: &LoginRecord, now: Timestamp) -> Option<Principal> {
        let digest = encoding::parse_hash(&record.key_hash)?;
        let principal = |entry: &KeyEntry| {
            let is_same = entry.id == record.key && bool::from(entry.digest.ct_eq(&digest));
            is_same.then(|| entry.principal(now)).flatten()
        };
        let stored = || principal(&self.key_store.get(&record.key)?.entry);
        self.config_keys.load().iter().find_map(principal).or_else(stored)
    }

    /// The first result of a function for any key.
    fn find_entry<T>(&self, find: impl Fn(&KeyEntry) -> Option<T>) -> Option<T> {
        let stored = || self.key_store.all().iter().find_map(|stored| find(&stored.entry));
        self.config_keys.load().iter().find_map(&find).or_else(stored)
    }
}

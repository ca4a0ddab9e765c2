//! The sessions in memory: how many each caller has, and which were used since their last write.

use std::{collections::HashMap, time::Duration};

use smol_str::SmolStr;
use toolhub_core::{
    clock::Timestamp,
    count_by_key::{CountByKey, is_full},
    ids::Tenant,
};

use super::{CreateSessionError, RETENTION, SessionLimits, SessionOwner};

/// All sessions that have not expired.
#[derive(Default)]
pub(super) struct SessionIndex {
    by_id: HashMap<SmolStr, IndexedSession>,
    by_owner: CountByKey<SessionOwner>,
    by_tenant: CountByKey<Tenant>,
}

struct IndexedSession {
    owner: SessionOwner,
    expires: Timestamp,
    is_written: bool,
}

impl SessionIndex {
    /// Adds a session that is about to be stored, if there is a place for it. Returns the unused one whose place it takes.
    pub(super) fn reserve(
        &mut self,
        owner: &SessionOwner,
        id: &SmolStr,
        limits: SessionLimits,
        now: Timestamp,
    ) -> Result<Option<(Tenant, SmolStr)>, CreateSessionError> {
        if self.total() >= limits.total || self.count(owner) >= limits.per_caller {
            self.remove_expired(now);
        }
        let has_share = |tenant: &Tenant| is_full(limits.total, limits.total, self.by_tenant.of(tenant));
        let mut replaced = None;
        if self.count(owner) >= limits.per_caller {
            let unused = self.find_unused(|other| other == owner, limits.idle, now);
            replaced = Some(unused.ok_or_else(|| CreateSessionError::TooManyOfCaller(self.count(owner)))?);
        } else if self.total() >= limits.total {
            // A tenant keeps its share, whatever the others do.
            let may_lose = |other: &SessionOwner| other.tenant == owner.tenant || has_share(&other.tenant);
            replaced = self.find_unused(may_lose, limits.idle, now);
            if replaced.is_none() && has_share(&owner.tenant) {
                return Err(CreateSessionError::TooMany(self.total()));
            }
        }
        if let Some((_, id)) = &replaced {
            self.remove(id);
        }
        self.insert_stored(owner, id, now + RETENTION);
        Ok(replaced)
    }

    /// Of the sessions of these owners the one that was not used for the longest time, at least for `idle`.
    fn find_unused(
        &self,
        is_candidate: impl Fn(&SessionOwner) -> bool,
        idle: Duration,
        now: Timestamp,
    ) -> Option<(Tenant, SmolStr)> {
        let sessions = self.by_id.iter().filter(|(_, entry)| is_candidate(&entry.owner));
        let (id, oldest) = sessions.min_by_key(|(_, entry)| entry.expires)?;
        let is_unused = oldest.expires <= now + RETENTION.saturating_sub(idle);
        is_unused.then(|| (oldest.owner.tenant.clone(), id.clone()))
    }

    /// Adds a session of the store, unless it is known, and records its use.
    pub(super) fn insert(&mut self, owner: &SessionOwner, id: &SmolStr, now: Timestamp) {
        if !self.by_id.contains_key(id) {
            self.insert_stored(owner, id, now);
        }
        self.touch(id, now);
    }

    /// Adds a session whose row expires at this time.
    pub(super) fn insert_stored(&mut self, owner: &SessionOwner, id: &SmolStr, expires: Timestamp) {
        let entry = IndexedSession { owner: owner.clone(), expires, is_written: true };
        if self.by_id.insert(id.clone(), entry).is_none() {
            self.by_owner.add(owner, 1);
            self.by_tenant.add(&owner.tenant, 1);
        }
    }

    pub(super) fn touch(&mut self, id: &str, now: Timestamp) {
        if let Some(entry) = self.by_id.get_mut(id) {
            let expires = now + RETENTION;
            if expires > entry.expires {
                (entry.expires, entry.is_written) = (expires, false);
            }
        }
    }

    pub(super) fn remove(&mut self, id: &str) {
        if let Some(entry) = self.by_id.remove(id) {
            self.by_owner.subtract(&entry.owner, 1);
            self.by_tenant.subtract(&entry.owner.tenant, 1);
        }
    }

    pub(super) fn count(&self, owner: &SessionOwner) -> usize {
        self.by_owner.of(owner)
    }

    pub(super) fn total(&self) -> usize {
        self.by_owner.total()
    }

    /// The sessions that were used since their last write, with their new expiry. Forgets those that have expired.
    pub(super) fn find_unwritten(&mut self, now: Timestamp) -> Vec<(Tenant, SmolStr, Timestamp)> {
        self.remove_expired(now);
        let unwritten = self.by_id.iter().filter(|(_, entry)| !entry.is_written);
        unwritten.map(|(id, entry)| (entry.owner.tenant.clone(), id.clone(), entry.expires)).collect()
    }

    /// These expiries are stored.
    pub(super) fn mark_written(&mut self, written: &[(SmolStr, Timestamp)]) {
        for (id, expires) in written {
            if let Some(entry) = self.by_id.get_mut(id) {
                entry.is_written = entry.expires == *expires;
            }
        }
    }

    fn remove_expired(&mut self, now: Timestamp) {
        let Self { by_id, by_owner, by_tenant } = self;
        by_id.retain(|_, entry| {
            let is_live = entry.expires > now;
            if !is_live {
                by_owner.subtract(&entry.owner, 1);
                by_tenant.subtract(&entry.owner.tenant, 1);
            }
            is_live
        });
    }
}

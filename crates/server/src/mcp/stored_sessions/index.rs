//! The sessions in memory: how many each caller has, which were used since their last write, and which were not used for long.
//!
//! All of them and those of each caller are ordered by their last use, so that a session at a limit is created or refused without
//! looking at the others.

use std::collections::{BTreeSet, HashMap};

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
    by_expiry: ByExpiry,
    by_owner: HashMap<SessionOwner, ByExpiry>,
    by_tenant: CountByKey<Tenant>,
}

/// Sessions, the one that was not used for the longest time first.
type ByExpiry = BTreeSet<(Timestamp, SmolStr)>;

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
    ) -> Result<Option<(SmolStr, SessionOwner)>, CreateSessionError> {
        self.remove_expired(now);
        let has_share = |tenant: &Tenant| is_full(limits.total, limits.total, self.by_tenant.of(tenant));
        let unused_since = now + RETENTION.saturating_sub(limits.idle);
        let mut replaced = None;
        if self.count(owner) >= limits.per_caller {
            let unused = self.by_owner.get(owner).and_then(|sessions| unused(sessions, unused_since).next());
            let unused = unused.ok_or_else(|| CreateSessionError::TooManyOfCaller(self.count(owner)))?;
            replaced = Some((unused.clone(), owner.clone()));
        } else if self.total() >= limits.total {
            // A tenant keeps its share, whatever the others do.
            let may_lose = |tenant: &Tenant| *tenant == owner.tenant || has_share(tenant);
            let unused = unused(&self.by_expiry, unused_since);
            let mut unused = unused.filter_map(|id| Some((id, &self.by_id.get(id)?.owner)));
            let replaceable = unused.find(|(_, owner)| may_lose(&owner.tenant));
            replaced = replaceable.map(|(id, owner)| (id.clone(), owner.clone()));
            if replaced.is_none() && has_share(&owner.tenant) {
                return Err(CreateSessionError::TooMany(self.total()));
            }
        }
        if let Some((id, _)) = &replaced {
            self.remove(id);
        }
        self.insert_stored(owner, id, now + RETENTION);
        Ok(replaced)
    }

    /// Adds a session of the store, unless it is known, and records its use.
    pub(super) fn insert(&mut self, owner: &SessionOwner, id: &SmolStr, now: Timestamp) {
        if !self.by_id.contains_key(id) {
            self.insert_stored(owner, id, now);
        }
        self.touch(id, now);
    }

    /// Adds a session whose row expires at this time, or notes that it was used on another node.
    pub(super) fn merge_stored(&mut self, owner: &SessionOwner, id: &SmolStr, expires: Timestamp) {
        if self.by_id.get(id).is_none_or(|entry| entry.expires < expires) {
            self.insert_stored(owner, id, expires);
        }
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    pub(super) fn ids(&self) -> Vec<SmolStr> {
        self.by_id.keys().cloned().collect()
    }

    /// Adds a session whose row expires at this time.
    pub(super) fn insert_stored(&mut self, owner: &SessionOwner, id: &SmolStr, expires: Timestamp) {
        self.remove(id);
        self.by_id.insert(id.clone(), IndexedSession { owner: owner.clone(), expires, is_written: true });
        self.by_expiry.insert((expires, id.clone()));
        self.by_owner.entry(owner.clone()).or_default().insert((expires, id.clone()));
        self.by_tenant.add(&owner.tenant, 1);
    }

    pub(super) fn touch(&mut self, id: &str, now: Timestamp) {
        let (Some(entry), expires) = (self.by_id.get_mut(id), now + RETENTION) else { return };
        if expires <= entry.expires {
            return;
        }
        let before = (entry.expires, SmolStr::from(id));
        (entry.expires, entry.is_written) = (expires, false);
        for sessions in [Some(&mut self.by_expiry), self.by_owner.get_mut(&entry.owner)].into_iter().flatten() {
            sessions.remove(&before);
            sessions.insert((expires, before.1.clone()));
        }
    }

    pub(super) fn remove(&mut self, id: &str) {
        let Some((id, entry)) = self.by_id.remove_entry(id) else { return };
        let ordered = (entry.expires, id);
        self.by_expiry.remove(&ordered);
        if let Some(sessions) = self.by_owner.get_mut(&entry.owner) {
            sessions.remove(&ordered);
            if sessions.is_empty() {
                self.by_owner.remove(&entry.owner);
            }
        }
        self.by_tenant.subtract(&entry.owner.tenant, 1);
    }

    pub(super) fn count(&self, owner: &SessionOwner) -> usize {
        self.by_owner.get(owner).map_or(0, BTreeSet::len)
    }

    pub(super) fn total(&self) -> usize {
        self.by_id.len()
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
        while let Some((expires, id)) = self.by_expiry.first()
            && *expires <= now
        {
            let id = id.clone();
            self.remove(&id);
        }
    }
}

/// The sessions that expire at this time or before.
fn unused(sessions: &ByExpiry, expires: Timestamp) -> impl Iterator<Item = &SmolStr> {
    sessions.iter().take_while(move |(it, _)| *it <= expires).map(|(_, id)| id)
}

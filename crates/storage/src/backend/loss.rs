//! A report of commits that a store acknowledged and lost all the same.

use std::collections::{BTreeMap, BTreeSet};

use toolhub_types::{
    ids::{CallId, Tenant},
    timestamp::Timestamp,
};

use super::Partition;

/// Commits that were acknowledged and are lost: a fail-over to a server that did not have them yet, or files that are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossReport {
    /// How many. Includes commits of other nodes if this node no longer remembers which of them are its own.
    pub commits: u64,
    /// When the first one that this node remembers was acknowledged, by the store's clock.
    pub since: Timestamp,
    /// What they changed, as far as this node remembers.
    pub tenants: BTreeMap<Tenant, TenantLosses>,
}

/// What lost commits of a tenant changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantLosses {
    /// The partitions, as text.
    pub partitions: LostNames<String>,
    /// The calls whose records they wrote.
    pub calls: LostNames<CallId>,
}

/// The first names of a list, and how many more there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostNames<T> {
    /// At most [`MAX_NAMED`](LossReport::MAX_NAMED), sorted.
    pub named: BTreeSet<T>,
    /// How many others there are; those of several reports are added up.
    pub others: u64,
}

impl<T> Default for LostNames<T> {
    fn default() -> Self {
        Self { named: BTreeSet::new(), others: 0 }
    }
}

impl<T: Ord> LostNames<T> {
    /// Adds these names, and the number of others without a name.
    pub fn add(&mut self, names: impl IntoIterator<Item = T>, others: u64) {
        self.named.extend(names);
        self.others += others;
        while self.named.len() > LossReport::MAX_NAMED {
            self.named.pop_last();
            self.others += 1;
        }
    }
}

impl LossReport {
    /// How many partitions and calls of a tenant a report names.
    pub const MAX_NAMED: usize = 20;

    /// A report of so many commits. `changes` is what they changed: partitions as text, and calls.
    pub fn new<'a>(commits: u64, since: Timestamp, changes: impl IntoIterator<Item = (&'a str, &'a [CallId])>) -> Self {
        // All names first: each counts once, however many commits changed it.
        let mut all = BTreeMap::<Tenant, (BTreeSet<&str>, BTreeSet<CallId>)>::new();
        for (text, changed) in changes {
            let Ok(Partition { tenant, .. }) = text.parse() else { continue };
            let (partitions, calls) = all.entry(tenant).or_default();
            partitions.insert(text);
            calls.extend(changed);
        }
        let limited = |(tenant, (partitions, calls)): (Tenant, (BTreeSet<&str>, BTreeSet<CallId>))| {
            let mut losses = TenantLosses::default();
            losses.partitions.add(partitions.into_iter().map(str::to_owned), 0);
            losses.calls.add(calls, 0);
            (tenant, losses)
        };
        Self { commits, since, tenants: all.into_iter().map(limited).collect() }
    }

    /// One report of all these losses; `None` for none.
    #[must_use]
    pub fn merge(reports: &[Self]) -> Option<Self> {
        let mut tenants = BTreeMap::<Tenant, TenantLosses>::new();
        for (tenant, TenantLosses { partitions, calls }) in reports.iter().flat_map(|report| &report.tenants) {
            let merged = tenants.entry(tenant.clone()).or_default();
            merged.partitions.add(partitions.named.iter().cloned(), partitions.others);
            merged.calls.add(calls.named.iter().copied(), calls.others);
        }
        Some(Self {
            commits: reports.iter().map(|report| report.commits).sum(),
            since: reports.iter().map(|report| report.since).min()?,
            tenants,
        })
    }

    /// The partitions of all tenants.
    #[must_use]
    pub fn partitions(&self) -> LostNames<String> {
        let mut all = LostNames::default();
        for TenantLosses { partitions, .. } in self.tenants.values() {
            all.add(partitions.named.iter().cloned(), partitions.others);
        }
        all
    }

    /// The calls of all tenants.
    #[must_use]
    pub fn calls(&self) -> LostNames<CallId> {
        let mut all = LostNames::default();
        for TenantLosses { calls, .. } in self.tenants.values() {
            all.add(calls.named.iter().copied(), calls.others);
        }
        all
    }
}

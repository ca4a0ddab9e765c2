//! `Alerts`: the targets of a hub, and what this node knows of conditions.
//!
//! In: targets, and conditions that hold on this node. Out: whether there are targets, and the set of these conditions. Modules that
//! store signals with their changes hold this handle; without targets they store none.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use smol_str::SmolStr;
use tokio::sync::Notify;

use super::{AlertTarget, Condition, signal::Signal};
use toolhub_storage::backend::{Durability, StoreError, Write};
use toolhub_types::{ids::Tenant, timestamp::Timestamp};

/// What this node delivered to a target since it started.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeliveryCounts {
    /// The target.
    pub target: String,
    /// Attempts after which the target had the message.
    pub delivered: u64,
    /// Attempts that failed.
    pub failures: u64,
}

/// Counters of a target.
#[derive(Default)]
pub(crate) struct DeliveryMeter {
    delivered: AtomicU64,
    failures: AtomicU64,
}

impl DeliveryMeter {
    /// Counts an attempt.
    pub(crate) fn count(&self, is_delivered: bool) {
        if is_delivered { &self.delivered } else { &self.failures }.fetch_add(1, Ordering::Relaxed);
    }
}

/// Key of a condition that holds on this node.
type LocalKey = (Condition, SmolStr, Option<SmolStr>);

/// The targets, and the conditions that hold on this node.
#[derive(Default)]
pub(crate) struct Alerts {
    targets: ArcSwap<Vec<AlertTarget>>,
    /// Whether there are targets. Beside them, because every change of a status asks.
    is_enabled: AtomicBool,
    /// Whether this hub evaluates conditions and delivers messages.
    pub(crate) delivers: bool,
    local: Mutex<BTreeMap<LocalKey, Signal>>,
    /// Notified when there is something to evaluate, or to send.
    pub(crate) changed: Notify,
    pub(crate) deliverable: Notify,
    /// The start of links, such as `https://toolhub.example/ui/`.
    ui_url: ArcSwap<Option<String>>,
    meters: Mutex<BTreeMap<SmolStr, Arc<DeliveryMeter>>>,
    /// How many alerts hold that were reported to a target, by condition, if this node evaluates them.
    firing: Mutex<BTreeMap<Condition, usize>>,
}

impl Alerts {
    pub(crate) fn new(delivers: bool) -> Self {
        Self { delivers, ..Self::default() }
    }

    /// Whether there are targets.
    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    pub(crate) fn targets(&self) -> Arc<Vec<AlertTarget>> {
        self.targets.load_full()
    }

    /// Replaces all targets.
    pub(crate) fn set_targets(&self, targets: Vec<AlertTarget>) {
        self.is_enabled.store(!targets.is_empty(), Ordering::Relaxed);
        self.targets.store(Arc::new(targets));
        self.changed.notify_waiters();
        self.deliverable.notify_one();
    }

    /// Sets the address of the dashboard, with a `/` at its end, for links in messages.
    pub(crate) fn set_ui_url(&self, url: String) {
        self.ui_url.store(Arc::new(Some(url)));
    }

    /// The page of a condition and a thing.
    pub(crate) fn link(&self, condition: Condition, thing: &str) -> Option<String> {
        let base = self.ui_url.load();
        let page = condition.row().page.replace("{}", thing);
        (**base).as_ref().map(|base| format!("{base}{page}"))
    }

    /// Sets or clears a condition on this node.
    pub(crate) fn set_local(&self, condition: Condition, thing: &SmolStr, signal: Option<Signal>) {
        let target = signal.as_ref().and_then(|signal| signal.target.clone());
        let mut local = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        match signal {
            Some(signal) => {
                // The begin stays that of the first time.
                let at = local.get(&(condition, thing.clone(), target.clone())).map_or(signal.at, |known| known.at);
                local.insert((condition, thing.clone(), target), Signal { at, ..signal });
            }
            None => local.retain(|(known, name, _), _| (*known, name) != (condition, thing)),
        }
    }

    /// Replaces all things of a condition on this node.
    pub(crate) fn replace_local(&self, condition: Condition, signals: Vec<Signal>) {
        let mut local = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        let before: BTreeMap<LocalKey, Signal> = local.extract_if(.., |(known, ..), _| *known == condition).collect();
        for signal in signals {
            let key = (condition, signal.thing.clone(), signal.target.clone());
            let at = before.get(&key).map_or(signal.at, |known| known.at);
            local.insert(key, Signal { at, ..signal });
        }
    }

    /// The counters of a target.
    pub(crate) fn meter(&self, target: &SmolStr) -> Arc<DeliveryMeter> {
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        meters.entry(target.clone()).or_default().clone()
    }

    /// What was delivered to the targets.
    pub(crate) fn delivery_counts(&self) -> Vec<DeliveryCounts> {
        let targets = self.targets();
        let count = |target: &AlertTarget| {
            let meter = self.meter(&target.name);
            let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let (delivered, failures) = (read(&meter.delivered), read(&meter.failures));
            DeliveryCounts { target: target.name.to_string(), delivered, failures }
        };
        targets.iter().map(count).collect()
    }

    /// Sets how many alerts hold.
    pub(crate) fn set_firing(&self, conditions: impl Iterator<Item = Condition>) {
        let mut counts = BTreeMap::new();
        for condition in conditions {
            *counts.entry(condition).or_default() += 1;
        }
        *self.firing.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }

    /// How many alerts hold, by condition.
    pub(crate) fn firing(&self) -> BTreeMap<Condition, usize> {
        self.firing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The conditions that hold on this node.
    pub(crate) fn local(&self) -> Vec<Signal> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// Makes signals for the changes that other crates commit.
#[doc(hidden)]
#[derive(Clone)]
pub struct AlertSignals(Arc<Alerts>);

impl std::fmt::Debug for AlertSignals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AlertSignals")
    }
}

impl AlertSignals {
    pub(crate) fn new(alerts: &Arc<Alerts>) -> Self {
        Self(alerts.clone())
    }

    /// The write of the signal that something without an end happened to a tenant, for the batch of the change; `None` without
    /// targets. The reason must contain no arguments, results or secrets.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn happened(
        &self,
        condition: Condition,
        (tenant, thing): (&Tenant, impl Into<SmolStr>),
        reason: impl Into<String>,
        now: Timestamp,
    ) -> Result<Option<Write>, StoreError> {
        let signal = || Signal::happened(condition, thing, now, reason).tenant(tenant).write(Durability::KillSafe);
        self.0.is_enabled().then(signal).transpose()
    }
}

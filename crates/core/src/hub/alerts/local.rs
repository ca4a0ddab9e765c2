//! Observes what only this node knows of itself: failing calls, full queues, dropped records, a slow store.
//!
//! In: the counters of this node, every few seconds. Out: the conditions that hold here. On a shared store they are in a row of this
//! node, which the node that evaluates alerts reads.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    sync::Weak,
    time::Duration,
};

use smol_str::SmolStr;
use tokio::time::Instant;

use super::{super::ToolHub, observation::own_node_name};
use crate::{
    alerts::{self, AlertTarget, Condition, Signal, node_id},
    engine::Engine,
};
use toolhub_storage::backend::{Batch, Expect};
use toolhub_types::{timestamp::Timestamp, tool::ToolName};

/// How often the counters are read.
const INTERVAL: Duration = Duration::from_secs(5);
/// A condition of this node ends when it did not hold for as long.
const CALM: Duration = Duration::from_secs(60);
/// Mean time of an operation above which a store is slow.
const SLOW_STORE: Duration = Duration::from_millis(500);
/// The used part of the queue above which it is full.
const FULL_QUEUE: f64 = 0.9;
/// How long the row of a node stays without being written again.
const ROW_TTL: Duration = Duration::from_secs(24 * 3600);

/// What this node saw, and when.
#[derive(Default)]
struct LocalObserver {
    /// Calls and errors of each tool, a sample per interval, the oldest first.
    calls: HashMap<ToolName, VecDeque<CallCounts>>,
    /// When the rate of a tool was too high for a target.
    errors_high: HashMap<(SmolStr, ToolName), Held>,
    dropped: u64,
    store_operations: HashMap<(&'static str, &'static str), (u64, f64)>,
    /// When conditions of this node held.
    held: HashMap<Condition, Held>,
}

/// When a condition held, and why.
struct Held {
    began: Instant,
    began_at: Timestamp,
    last: Instant,
    reason: String,
}

impl Held {
    /// Takes note that it holds.
    fn note<K: Eq + Hash>(held: &mut HashMap<K, Self>, key: K, reason: String, (now, at): (Instant, Timestamp)) {
        let entry =
            held.entry(key).or_insert_with(|| Self { began: now, began_at: at, last: now, reason: String::new() });
        (entry.last, entry.reason) = (now, reason);
    }

    /// Whether it counts as holding until it did not hold for `calm`. One that did not last for `hold` ends at once, so that it is not
    /// reported.
    fn lasts(&self, now: Instant, hold: Duration, calm: Duration) -> bool {
        let limit = if self.last - self.began >= hold { calm } else { INTERVAL };
        now - self.last < limit
    }
}

struct CallCounts {
    at: Instant,
    calls: u64,
    errors: u64,
}

/// Observes this node until the hub is dropped.
pub(in crate::hub) async fn run(hub: Weak<Engine>) {
    let (mut observer, mut written) = (LocalObserver::default(), Vec::new());
    loop {
        let Some(engine) = hub.upgrade() else { return };
        let alerts = engine.services.alerts.clone();
        let changed = alerts.changed.notified();
        if !alerts.is_enabled() {
            drop(engine);
            changed.await;
            continue;
        }
        let hub = ToolHub { engine };
        observer.look(&hub, &alerts.targets());
        if !hub.engine.nodes.is_exclusive() {
            let current = alerts.local();
            if current != written && store(&hub.engine, &current).await {
                written = current;
            }
        }
        drop(hub);
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Stores the conditions of this node; returns whether that succeeded.
async fn store(engine: &Engine, signals: &[Signal]) -> bool {
    let now = engine.services.clock.now();
    let id = node_id(&engine.journal.node);
    let write = match signals.is_empty() {
        true => Ok(alerts::remove(id, Expect::Any)),
        false => alerts::put(id, &signals, Expect::Any, Some(now + ROW_TTL)),
    };
    let Ok(write) = write else { return false };
    let stored = engine.services.store.commit(Batch::new(alerts::partition()).with(write), now).await;
    stored.inspect_err(|error| tracing::debug!(%error, "conditions of this node not stored")).is_ok()
}

impl LocalObserver {
    fn look(&mut self, hub: &ToolHub, targets: &[AlertTarget]) {
        let (alerts, now) = (&hub.engine.services.alerts, hub.now());
        let wants = |condition| targets.iter().any(|target| target.wants_condition(condition));
        if wants(Condition::ErrorsHigh) {
            let signals = self.failing_tools(hub, targets, now);
            alerts.replace_local(Condition::ErrorsHigh, signals);
        }
        let name = own_node_name(&hub.engine);
        for (condition, reason) in [
            (Condition::StoreSlow, self.slow_store(hub)),
            (Condition::QueueFull, full_queue(hub)),
            (Condition::RecordsDropped, self.dropped_records(hub)),
        ] {
            let instant = Instant::now();
            if let Some(reason) = reason {
                Held::note(&mut self.held, condition, reason, (instant, now));
            }
            let holds = targets.iter().filter(|target| target.wants_condition(condition));
            let hold = holds.map(|target| target.hold_of(condition)).min().unwrap_or_default();
            self.held.retain(|known, held| *known != condition || held.lasts(instant, hold, CALM));
            let held = self.held.get(&condition);
            let signal = held.map(|held| Signal::active(condition, name.clone(), held.began_at, held.reason.as_str()));
            alerts.replace_local(condition, signal.into_iter().collect());
        }
    }

    fn failing_tools(&mut self, hub: &ToolHub, targets: &[AlertTarget], now: Timestamp) -> Vec<Signal> {
        let (at, mut signals) = (Instant::now(), Vec::new());
        let targets: Vec<_> = targets.iter().filter(|target| target.wants_condition(Condition::ErrorsHigh)).collect();
        let longest = targets.iter().map(|target| target.errors.window).max().unwrap_or_default();
        let stats = hub.stats();
        self.calls.retain(|tool, _| stats.iter().any(|stats| stats.tool == *tool));
        self.errors_high.retain(|(target, tool), _| {
            targets.iter().any(|known| known.name == *target) && stats.iter().any(|stats| stats.tool == *tool)
        });
        for stats in stats {
            let samples = self.calls.entry(stats.tool.clone()).or_default();
            samples.push_back(CallCounts { at, calls: stats.calls, errors: stats.errors.values().sum() });
            while samples.get(1).is_some_and(|sample| at - sample.at >= longest) {
                samples.pop_front();
            }
            for target in &targets {
                let key = (target.name.clone(), stats.tool.clone());
                let rule = target.errors;
                let oldest = samples.iter().rev().find(|sample| at - sample.at >= rule.window).or(samples.front());
                let (Some(oldest), Some(newest)) = (oldest, samples.back()) else { continue };
                let calls = newest.calls.saturating_sub(oldest.calls);
                let errors = newest.errors.saturating_sub(oldest.errors);
                #[expect(clippy::cast_precision_loss, reason = "a rate")]
                let is_high = calls >= rule.minimum && errors as f64 > rule.rate * calls as f64;
                if is_high {
                    let reason = format!("{errors} of its last {calls} calls failed");
                    Held::note(&mut self.errors_high, key.clone(), reason, (at, now));
                }
                let Some(held) = self.errors_high.get(&key) else { continue };
                if !held.lasts(at, target.hold_of(Condition::ErrorsHigh), rule.window) {
                    self.errors_high.remove(&key);
                    continue;
                }
                let (tool, reason) = (&stats.tool, held.reason.as_str());
                let signal = Signal::active(Condition::ErrorsHigh, tool.as_str(), held.began_at, reason).tool(tool);
                signals.push(Signal { target: Some(target.name.clone()), ..signal });
            }
        }
        signals
    }

    fn slow_store(&mut self, hub: &ToolHub) -> Option<String> {
        if !hub.store_errors().is_empty() || !hub.store_refusals().is_empty() {
            return Some("it refuses writes".into());
        }
        let mut slow = None;
        for stats in hub.store_stats() {
            #[expect(clippy::cast_precision_loss, reason = "a mean")]
            let (count, total) = (stats.latency.count, stats.latency.mean.as_secs_f64() * stats.latency.count as f64);
            let before = self.store_operations.insert((stats.backend, stats.operation), (count, total));
            let Some((count_before, total_before)) = before else { continue };
            let operations = count.saturating_sub(count_before);
            #[expect(clippy::cast_precision_loss, reason = "a mean")]
            let mean = if operations > 0 { (total - total_before) / operations as f64 } else { 0.0 };
            if mean > SLOW_STORE.as_secs_f64() {
                slow = Some(format!("an operation `{}` took {mean:.1} s on average", stats.operation));
            }
        }
        slow
    }

    fn dropped_records(&mut self, hub: &ToolHub) -> Option<String> {
        let dropped = hub.dropped_events() + hub.journal_stats().dropped;
        let more = dropped.saturating_sub(std::mem::replace(&mut self.dropped, dropped));
        (more > 0).then(|| format!("{more} records or events were dropped within {} s", INTERVAL.as_secs()))
    }
}

fn full_queue(hub: &ToolHub) -> Option<String> {
    let (queued, limit) = (hub.queued_calls(), hub.engine.scheduler.max_queued());
    #[expect(clippy::cast_precision_loss, reason = "a part")]
    let is_full = limit > 0 && queued as f64 >= FULL_QUEUE * limit as f64;
    is_full.then(|| format!("{queued} calls wait; at most {limit} may"))
}

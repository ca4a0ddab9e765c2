//! Turns signals and observations into messages, on one node.
//!
//! In: the signals in the store, and what the hub observes. Out: records of alerts and messages, committed together. A commit expects the
//! row `head` unchanged, so two nodes that both evaluate for a moment never report the same change. After an error everything is read
//! again from the store.

use std::collections::{BTreeSet, HashMap, HashSet};

use smol_str::SmolStr;

use super::{
    super::ToolHub,
    observation::{Observation, observe},
};
use crate::alerts::{
    self, AlertMessage, AlertPhase, AlertRecord, AlertTarget, Alerts, Condition, Deliveries, DueAlert, HEAD_ID, Head,
    RECORD_PREFIX, SIGNAL_PREFIX, SentLately, Signal, SignalKind, WaitingDelivery,
};
use toolhub_storage::backend::{
    Backend, Batch, Expect, RowKey, RowVersion, Scan, Scope, StoreError, Table, decode, read_all,
};
use toolhub_types::{ids::mint_uuid_text, timestamp::Timestamp};

/// Number of signals that one round takes.
const MAX_SIGNALS: usize = 200;
/// Number of observed changes that one round takes.
const MAX_CHANGES: usize = 500;
/// How long a node is missed.
const FORGETTING: std::time::Duration = std::time::Duration::from_secs(24 * 3600);
/// How long an alert is valid after its repetition was due, for targets that forget it then.
const GRACE: std::time::Duration = std::time::Duration::from_secs(600);

/// All records of alerts, as this node knows them.
pub(super) struct Evaluator {
    head: Head,
    head_version: Option<RowVersion>,
    records: HashMap<SmolStr, (SmolStr, AlertRecord)>,
    sent: HashMap<SmolStr, SentLately>,
}

/// The changes of one round.
#[derive(Default)]
struct Round {
    changed: BTreeSet<SmolStr>,
    /// The signals that were taken into account, with their rows.
    consumed: Vec<RowKey>,
    /// The signals that an earlier round took into account, and that are still there.
    repeated: Vec<RowKey>,
    /// What the signals are about. It was observed before, perhaps without their changes.
    signalled: HashSet<SmolStr>,
    is_full: bool,
}

impl Round {
    /// The signals that may not be taken into account again.
    fn signals(&self) -> impl Iterator<Item = &RowKey> {
        self.repeated.iter().chain(&self.consumed)
    }
}

impl Evaluator {
    /// Reads all records.
    pub(super) async fn load(store: &dyn Backend, now: Timestamp) -> Result<Self, StoreError> {
        let row = store.load(&[alerts::row_key(HEAD_ID)], now).await?.pop().flatten();
        let head = row.map(|row| decode::<Head>(Table::Alerts, &HEAD_ID, 1, &row)).transpose()?;
        let (head, head_version) = head.map_or_else(Default::default, |(head, version)| (head, Some(version)));
        let mut records = HashMap::new();
        for (key, row) in read_all(store, alerts::scan(RECORD_PREFIX), now).await? {
            let target = key.id[RECORD_PREFIX.len()..].split('/').next().unwrap_or_default().into();
            if let Some(record) = alerts::read::<AlertRecord>(&key, &row) {
                records.insert(key.id, (target, record));
            }
        }
        Ok(Self { head, head_version, records, sent: HashMap::new() })
    }

    /// The records of a target.
    pub(super) fn records(&self, target: &str) -> impl Iterator<Item = &AlertRecord> {
        self.records.values().filter(move |(name, _)| name == target).map(|(_, record)| record)
    }

    /// Evaluates once. Returns whether there is more to do at once.
    pub(super) async fn evaluate(&mut self, hub: &ToolHub) -> Result<bool, StoreError> {
        let services = &hub.engine.services;
        let targets = services.alerts.targets();
        // Before the signals are read: the signal of every change that is seen here is among them.
        let observation = observe(hub).await?;
        let now = observation.at;
        let mut scan = Scan::new(Table::Alerts, Scope::All).prefix(SIGNAL_PREFIX).limit(MAX_SIGNALS);
        scan.max_bytes = 1 << 20;
        let page = services.store.scan(scan, now).await?;
        let mut round = Round { is_full: page.next.is_some(), ..Round::default() };
        let known: HashSet<&SmolStr> = self.head.consumed.iter().collect();
        let (repeated, fresh): (Vec<_>, Vec<_>) = page.rows.into_iter().partition(|(key, _)| known.contains(&key.id));
        // The last round has taken them into account, and did not come to remove them.
        round.repeated = repeated.into_iter().map(|(key, _)| key).collect();
        let mut signals = Vec::new();
        for (key, row) in fresh {
            signals.extend(alerts::read::<Signal>(&key, &row));
            round.consumed.push(key);
        }
        signals.sort_by(|a, b| (&a.thing, a.version, a.at).cmp(&(&b.thing, b.version, b.at)));
        round.signalled = signals.iter().map(|signal| signal.thing.clone()).collect();
        for target in targets.iter() {
            for signal in &signals {
                self.take(target, signal, &observation, &mut round);
            }
            if !round.is_full {
                self.take_tools(target, &observation, &mut round);
                self.take_levels(target, &observation, &mut round);
            }
        }
        let messages = self.report(&targets, &services.alerts, &observation, &mut round);
        self.forget(&targets, now, &mut round);
        let is_sent = !messages.is_empty();
        self.commit(&*services.store, &round, messages, now).await?;
        remove_signals(&*services.store, round.repeated.into_iter().chain(round.consumed), now).await?;
        if is_sent {
            services.alerts.deliverable.notify_one();
        }
        Ok(round.is_full)
    }

    /// Takes a stored signal into account.
    fn take(&mut self, target: &AlertTarget, signal: &Signal, observation: &Observation, round: &mut Round) {
        let mut signal = signal.clone();
        if signal.condition == Condition::ToolStatus {
            let server =
                signal.tool.as_ref().and_then(|tool| observation.registered.get(tool.as_str())?.source.clone());
            signal.server = server;
            if is_covered(target, signal.server.as_ref(), observation) {
                return;
            }
            if let Some(withheld) = withheld(&signal) {
                self.apply(target, &withheld, round);
            }
        }
        self.apply(target, &signal, round);
    }

    /// Compares the tools with what was reported.
    fn take_tools(&mut self, target: &AlertTarget, observation: &Observation, round: &mut Round) {
        for condition in [Condition::ToolStatus, Condition::ToolWithheld] {
            if !target.wants_condition(condition) {
                continue;
            }
            for tool in observation.tools.values() {
                let server = tool.signal.server.as_ref();
                let is_unknown = server.is_some_and(|server| observation.servers_starting.contains(server));
                if is_unknown || is_covered(target, server, observation) {
                    continue;
                }
                let signal = match condition {
                    Condition::ToolStatus => Some(tool.signal.clone()),
                    _ => withheld(&tool.signal),
                };
                let Some(signal) = signal else { continue };
                let record = self.records.get(&key(target, &AlertRecord::new(&signal)));
                let is_stale = record.is_some_and(|(_, record)| record.version > tool.version);
                if !is_stale && (record.is_some() || signal.kind == SignalKind::Active) {
                    self.apply(target, &signal, round);
                }
            }
            let signalled = round.signalled.clone();
            let is_known = |record: &AlertRecord| {
                let is_pending = record.server.as_ref().is_some_and(|server| {
                    observation.servers_down.contains(server) || observation.servers_starting.contains(server)
                });
                record.condition == condition && record.is_active && !is_pending && !signalled.contains(&record.thing)
            };
            let state = |record: &AlertRecord| {
                let tool = record.tool.as_ref().filter(|tool| !observation.tools.contains_key(*tool))?;
                Some(observation.registered.get(tool.as_str()).is_some())
            };
            let is_available = |record: &AlertRecord| is_known(record) && state(record) == Some(true);
            self.end(target, is_available, "available", observation.at, round);
            let is_gone = |record: &AlertRecord| is_known(record) && state(record) == Some(false);
            self.end(target, is_gone, "the tool was removed", observation.at, round);
        }
    }

    /// Compares the other lasting conditions with what was reported.
    fn take_levels(&mut self, target: &AlertTarget, observation: &Observation, round: &mut Round) {
        for (condition, signals) in &observation.levels {
            if !target.wants_condition(*condition) {
                continue;
            }
            for signal in signals {
                self.apply(target, signal, round);
            }
            let held: HashSet<_> = signals.iter().map(|signal| (&signal.thing, &signal.tenant)).collect();
            let has_ended = |record: &AlertRecord| {
                let is_unknown = match condition {
                    Condition::ServerDown => observation.servers_starting.contains(&record.thing),
                    // A dead node leaves the list after a while. One that never comes back is forgotten after a day.
                    Condition::NodeGone => {
                        !observation.nodes_alive.contains(&record.thing) && observation.at < record.since + FORGETTING
                    }
                    _ => false,
                };
                record.condition == *condition
                    && record.is_active
                    && !held.contains(&(&record.thing, &record.tenant))
                    && !is_unknown
            };
            self.end(target, has_ended, "", observation.at, round);
        }
    }

    /// Ends alerts of a target.
    fn end(
        &mut self,
        target: &AlertTarget,
        has_ended: impl Fn(&AlertRecord) -> bool,
        reason: &str,
        at: Timestamp,
        round: &mut Round,
    ) {
        let ended = self.records(&target.name).filter(|record| has_ended(record));
        let signals: Vec<Signal> = ended
            .map(|record| Signal {
                kind: SignalKind::Ended,
                state: SmolStr::new_static("available"),
                tenant: record.tenant.clone(),
                tool: record.tool.clone(),
                server: record.server.clone(),
                ..Signal::active(record.condition, record.thing.clone(), at, reason)
            })
            .collect();
        for signal in signals {
            self.apply(target, &signal, round);
        }
    }

    fn apply(&mut self, target: &AlertTarget, signal: &Signal, round: &mut Round) {
        if !target.wants(signal) {
            return;
        }
        if round.changed.len() >= MAX_CHANGES {
            // Stored signals are few enough; only observations wait for the next round.
            round.is_full |= signal.version.is_none();
            if signal.version.is_none() && signal.kind != SignalKind::Happened {
                return;
            }
        }
        let new = AlertRecord::new(signal);
        let id = key(target, &new);
        let (_, record) = self.records.entry(id.clone()).or_insert_with(|| (target.name.clone(), new));
        if record.observe(signal) {
            round.changed.insert(id);
        }
    }

    /// The messages that are due.
    fn report(
        &mut self,
        targets: &[AlertTarget],
        alerts: &Alerts,
        observation: &Observation,
        round: &mut Round,
    ) -> Vec<AlertMessage> {
        let (now, mut messages) = (observation.at, Vec::new());
        for target in targets {
            let mut due = Vec::new();
            for (id, (_, record)) in self.records.iter_mut().filter(|(_, (name, _))| *name == target.name) {
                if record.tool.is_some() && is_covered(target, record.server.as_ref(), observation) {
                    continue;
                }
                if record.settle(target, now) {
                    round.changed.insert(id.clone());
                }
                due.extend(record.due(target).map(|due| DueAlert {
                    key: id.clone(),
                    condition: record.condition,
                    due,
                    server: record.server.clone(),
                }));
            }
            let sent = self.sent.entry(target.name.clone()).or_default();
            for ((condition, phase), ids) in alerts::group(due, sent, now) {
                let mut told = Vec::new();
                for id in ids {
                    let Some((_, record)) = self.records.get_mut(&id) else { continue };
                    let link = alerts.link(condition, &record.thing);
                    told.push(record.report(phase, link, now));
                    round.changed.insert(id);
                }
                let lasts = matches!(phase, AlertPhase::Firing | AlertPhase::Changed | AlertPhase::Repeated);
                messages.push(AlertMessage {
                    id: mint_uuid_text("msg_", now),
                    target: target.name.clone(),
                    phase,
                    condition: Some(condition),
                    at: now,
                    link: told.first().and_then(|alert| alert.link.clone()),
                    alerts: told,
                    valid_until: lasts.then(|| now + target.repeat + GRACE),
                });
            }
        }
        messages
    }

    /// Marks records that are over, and those of targets that no longer exist.
    fn forget(&mut self, targets: &[AlertTarget], now: Timestamp, round: &mut Round) {
        let is_over = |target: &SmolStr, record: &AlertRecord| {
            let target = targets.iter().find(|known| known.name == *target);
            target.is_none_or(|target| !target.wants_condition(record.condition)) || record.is_over(now)
        };
        let over = self.records.iter().filter(|(_, (target, record))| is_over(target, record));
        let over: Vec<SmolStr> = over.map(|(id, _)| id.clone()).collect();
        for id in over {
            self.records.remove(&id);
            round.changed.insert(id);
        }
    }

    /// Stores the changed records with the messages about them.
    async fn commit(
        &mut self,
        store: &dyn Backend,
        round: &Round,
        messages: Vec<AlertMessage>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if round.changed.is_empty() && messages.is_empty() && round.consumed.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new(alerts::partition());
        let mut head = Head { last: self.head.last, consumed: round.signals().map(|key| key.id.clone()).collect() };
        for id in &round.changed {
            batch.writes.push(match self.records.get(id) {
                Some((_, record)) => alerts::put(id.clone(), record, Expect::Any, None)?,
                None => alerts::remove(id.clone(), Expect::Any),
            });
        }
        for message in messages {
            head.last += 1;
            let id = Deliveries::Waiting.row_id(&message.target, head.last);
            let expires = Some(now + alerts::MAX_DELIVERY + alerts::RETENTION);
            batch.writes.push(alerts::put(id, &WaitingDelivery::new(message), Expect::Absent, expires)?);
        }
        let expect = self.head_version.map_or(Expect::Absent, Expect::Same);
        batch.writes.insert(0, alerts::put(HEAD_ID, &head, expect, None)?);
        let stamp = batch.stamp;
        let versions = store.commit(batch, now).await?;
        self.head = head;
        self.head_version = Some(RowVersion { number: versions.first().copied().unwrap_or_default(), stamp });
        Ok(())
    }
}

/// Whether an alert about a tool is part of the one about its server.
fn is_covered(target: &AlertTarget, server: Option<&SmolStr>, observation: &Observation) -> bool {
    target.wants_condition(Condition::ServerDown)
        && server.is_some_and(|server| observation.servers_down.contains(server))
}

/// The signal that a tool is withheld, of the one about its status. A tool on probation is back only when a call has succeeded.
fn withheld(signal: &Signal) -> Option<Signal> {
    (!signal.is_on_probation).then(|| Signal { condition: Condition::ToolWithheld, ..signal.clone() })
}

/// The row of the alert.
fn key(target: &AlertTarget, record: &AlertRecord) -> SmolStr {
    alerts::record_id(&target.name, record)
}

async fn remove_signals(
    store: &dyn Backend,
    keys: impl Iterator<Item = RowKey>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut by_partition: HashMap<_, Vec<SmolStr>> = HashMap::new();
    for key in keys {
        by_partition.entry(key.partition).or_default().push(key.id);
    }
    for (partition, ids) in by_partition {
        let writes = ids.into_iter().map(|id| alerts::remove(id, Expect::Any)).collect();
        store.commit(Batch { writes, ..Batch::new(partition) }, now).await?;
    }
    Ok(())
}

//! Alerts of a hub: public API, and the tasks that evaluate conditions and deliver messages.
//!
//! In: targets, and everything the hub observes. Out: messages to the targets, and what is known about them. `alerts` decides; the node
//! with the maintenance lease evaluates and delivers.

mod delivery;
mod evaluator;
mod local;
mod observation;

use std::{sync::Weak, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;
use smol_str::SmolStr;

pub(super) use delivery::run as run_delivery;
use evaluator::Evaluator;
pub(super) use local::run as run_local_observation;
pub(super) use observation::own_node_name;

use super::ToolHub;
use crate::{
    alerts::{
        self, AlertDelivery, AlertMessage, AlertPhase, AlertRecord, AlertTarget, Condition, Deliveries,
        DeliveryAttempt, RECORD_PREFIX, Signal, WaitingDelivery, number_of, target_id,
    },
    engine::Engine,
};
use toolhub_storage::backend::{Batch, Expect, StoreError, read_all};
use toolhub_types::{
    ids::{Tenant, mint_uuid_text},
    timestamp::Timestamp,
};

/// How often conditions are evaluated.
const INTERVAL: Duration = Duration::from_secs(1);

/// A target of alerts, and what was delivered to it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AlertTarget")]
#[non_exhaustive]
pub struct AlertTargetInfo {
    /// Its name.
    pub name: String,
    /// The format of its messages: `json`, `slack` or `alertmanager`.
    pub format: String,
    /// The host that messages are sent to.
    pub host: String,
    /// The conditions that are reported to it.
    pub on: Vec<Condition>,
    /// The alerts that hold.
    pub alerts: Vec<ActiveAlert>,
    /// How many messages wait to be delivered.
    pub waiting: usize,
    /// The last attempt to deliver the oldest waiting message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<DeliveryAttempt>,
    /// Why no messages are sent to it, if it said that it wants none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<String>,
}

/// An alert that holds.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ActiveAlert {
    /// Its id.
    pub id: String,
    /// The condition.
    pub condition: Condition,
    /// What it is about.
    pub thing: String,
    /// The tenant it concerns; absent if it concerns all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    /// The state in a word.
    pub state: String,
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: String,
    /// Whether no message says so yet, because it must hold for a while first.
    pub pending: bool,
    /// Whether it changes too often, so that no messages are sent until it is stable.
    pub flapping: bool,
    /// Its page of the dashboard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

/// A page of deliveries, newest first.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct DeliveryPage {
    /// The deliveries.
    pub deliveries: Vec<AlertDelivery>,
    /// The cursor of the next page; `None` on the last one.
    pub next: Option<u64>,
}

/// No target has this name.
#[derive(Debug, thiserror::Error)]
pub enum AlertTargetError {
    /// No target has this name; these do.
    #[error("there is no alert target `{0}`")]
    Unknown(String, Vec<String>),
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ToolHub {
    /// Replaces all targets of alerts. Alerts of targets that stay go on.
    pub fn set_alert_targets(&self, targets: Vec<AlertTarget>) {
        self.engine.services.alerts.set_targets(targets);
    }

    /// Sets the address of the dashboard, such as `https://toolhub.example/ui/`, for links in alerts.
    pub fn set_alert_links(&self, ui_url: impl Into<String>) {
        self.engine.services.alerts.set_ui_url(ui_url.into());
    }

    /// For crates that store signals with their changes.
    #[doc(hidden)]
    #[must_use]
    pub fn alert_signals(&self) -> alerts::AlertSignals {
        alerts::AlertSignals::new(&self.engine.services.alerts)
    }

    /// Says which API keys expire when, for the condition `key.expiring`. Replaces what was said before.
    pub fn report_key_expiries(&self, keys: &[(String, Tenant, Timestamp)]) {
        let (alerts, now) = (&self.engine.services.alerts, self.now());
        let mut signals = Vec::new();
        for target in alerts.targets().iter().filter(|target| target.wants_condition(Condition::KeyExpiring)) {
            for (name, tenant, expires) in keys.iter().filter(|(.., expires)| *expires <= now + target.key_expiry) {
                let word = if *expires <= now { "expired" } else { "expires" };
                let signal =
                    Signal::active(Condition::KeyExpiring, name.as_str(), now, format!("it {word} at {expires}"));
                signals.push(Signal { target: Some(target.name.clone()), ..signal.tenant(tenant) });
            }
        }
        alerts.replace_local(Condition::KeyExpiring, signals);
    }

    /// Whether any target receives alerts about API keys that expire soon.
    #[must_use]
    pub fn watches_key_expiry(&self) -> bool {
        self.engine.services.alerts.targets().iter().any(|target| target.wants_condition(Condition::KeyExpiring))
    }

    /// How many alerts hold that were reported to a target, by condition, if this node evaluates them.
    #[must_use]
    pub fn firing_alerts(&self) -> Vec<(Condition, usize)> {
        self.engine.services.alerts.firing().into_iter().collect()
    }

    /// Says whether a condition holds on this node, and why, for what only the program around the hub can see. The reason must contain
    /// no secret.
    pub fn report_condition(&self, condition: Condition, thing: &str, reason: Option<&str>) {
        let (thing, now) = (SmolStr::new(thing), self.now());
        let signal = reason.map(|reason| Signal::active(condition, thing.clone(), now, reason));
        self.engine.services.alerts.set_local(condition, &thing, signal);
    }

    /// The targets of alerts, with the alerts that hold.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn alert_targets(&self) -> Result<Vec<AlertTargetInfo>, StoreError> {
        let (services, now) = (&self.engine.services, self.now());
        let mut infos = Vec::new();
        for target in services.alerts.targets().iter() {
            let rows =
                read_all(&*services.store, alerts::scan(&format!("{RECORD_PREFIX}{}/", target.name)), now).await?;
            let records = rows.iter().filter_map(|(key, row)| alerts::read::<AlertRecord>(key, row));
            let mut active: Vec<_> = records.filter(|record| record.is_active).collect();
            active.sort_by_key(|alert| std::cmp::Reverse(alert.since));
            let waiting = read_all(&*services.store, Deliveries::Waiting.scan(&target.name), now).await?;
            let oldest = waiting.first().and_then(|(key, row)| alerts::read::<AlertDelivery>(key, row));
            infos.push(AlertTargetInfo {
                name: target.name.to_string(),
                format: target.channel.format().into(),
                host: target.channel.host(),
                on: target.conditions.clone(),
                alerts: active.into_iter().map(|record| self.active_alert(record)).collect(),
                waiting: waiting.len(),
                last_failure: oldest.and_then(|delivery| delivery.last),
                disabled: delivery::disabled(&self.engine, target).await?.map(|disabled| disabled.reason),
            });
        }
        Ok(infos)
    }

    fn active_alert(&self, record: AlertRecord) -> ActiveAlert {
        let link = self.engine.services.alerts.link(record.condition, &record.thing);
        ActiveAlert {
            id: record.id.to_string(),
            condition: record.condition,
            pending: !record.is_firing() && !record.is_flapping(),
            flapping: record.is_flapping(),
            thing: record.thing.to_string(),
            tenant: record.tenant,
            state: record.state.to_string(),
            since: record.since,
            reason: record.reason,
            link,
        }
    }

    /// The deliveries to a target, newest first: on the first page those that wait, then those that ended within a week.
    ///
    /// # Errors
    /// When there is no such target, or the store does not answer.
    pub async fn alert_deliveries(
        &self,
        target: &str,
        before: Option<u64>,
        limit: usize,
    ) -> Result<DeliveryPage, AlertTargetError> {
        let target = self.alert_target(target)?;
        let (store, now) = (&self.engine.services.store, self.now());
        let mut rows = Vec::new();
        if before.is_none() {
            rows = read_all(&**store, Deliveries::Waiting.scan(&target.name), now).await?;
            rows.reverse();
        }
        let mut scan = Deliveries::Finished.scan(&target.name).limit(limit);
        scan.descending = true;
        scan.after = before.map(|number| Deliveries::Finished.cursor(&target.name, number));
        let page = store.scan(scan, now).await?;
        let next = page.next.and_then(|cursor| number_of(&cursor.0.id));
        rows.extend(page.rows);
        let deliveries = rows.iter().filter_map(|(key, row)| alerts::read(key, row)).collect();
        Ok(DeliveryPage { deliveries, next })
    }

    /// Sends a test message to a target, once and at once, from this node.
    ///
    /// # Errors
    /// When there is no such target.
    pub async fn test_alert_target(&self, target: &str) -> Result<DeliveryAttempt, AlertTargetError> {
        let target = self.alert_target(target)?;
        let at = self.now();
        let message = AlertMessage {
            id: mint_uuid_text("msg_", at),
            target: target.name.clone(),
            phase: AlertPhase::Test,
            condition: None,
            at,
            alerts: Vec::new(),
            valid_until: None,
            link: None,
        };
        Ok(delivery::send(&target, &message, at).await.0)
    }

    /// Sends the waiting messages of a target now, and enables it if it was disabled. Returns how many there are.
    ///
    /// # Errors
    /// When there is no such target, or the store does not answer.
    pub async fn retry_alert_deliveries(&self, target: &str) -> Result<usize, AlertTargetError> {
        let target = self.alert_target(target)?;
        let (services, now) = (&self.engine.services, self.now());
        let rows = read_all(&*services.store, Deliveries::Waiting.scan(&target.name), now).await?;
        let mut batch = Batch::new(alerts::partition()).with(alerts::remove(target_id(&target.name), Expect::Any));
        for (key, row) in &rows {
            let Some(mut waiting) = alerts::read::<WaitingDelivery>(key, row) else { continue };
            waiting.retry_at(now);
            batch.writes.push(alerts::put(key.id.clone(), &waiting, Expect::Same(row.version), row.expires)?);
        }
        services.store.commit(batch, now).await?;
        services.alerts.deliverable.notify_one();
        Ok(rows.len())
    }

    fn alert_target(&self, name: &str) -> Result<AlertTarget, AlertTargetError> {
        let targets = self.engine.services.alerts.targets();
        let found = targets.iter().find(|target| target.name == name).cloned();
        let names = || targets.iter().map(|target| target.name.to_string()).collect();
        found.ok_or_else(|| AlertTargetError::Unknown(name.into(), names()))
    }

    /// Counters of the deliveries of this node, by target.
    #[must_use]
    pub fn alert_delivery_counts(&self) -> Vec<alerts::DeliveryCounts> {
        self.engine.services.alerts.delivery_counts()
    }
}

/// Evaluates conditions on the node with the maintenance lease, until the hub is dropped.
pub(super) async fn run_evaluation(hub: Weak<Engine>) {
    let mut evaluator: Option<Evaluator> = None;
    loop {
        let Some(engine) = hub.upgrade() else { return };
        let alerts = engine.services.alerts.clone();
        let changed = alerts.changed.notified();
        if !alerts.is_enabled() {
            evaluator = None;
            alerts.set_firing(std::iter::empty());
            drop(engine);
            changed.await;
            continue;
        }
        let mut has_more = false;
        if engine.nodes.is_maintainer() {
            match evaluate(&ToolHub { engine: engine.clone() }, &mut evaluator).await {
                Ok(more) => has_more = more,
                Err(error) => {
                    tracing::debug!(%error, "alerts not evaluated; retrying");
                    evaluator = None;
                }
            }
        } else {
            evaluator = None;
            alerts.set_firing(std::iter::empty());
        }
        drop(engine);
        if !has_more {
            let _ = tokio::time::timeout(INTERVAL, changed).await;
        }
    }
}

async fn evaluate(hub: &ToolHub, evaluator: &mut Option<Evaluator>) -> Result<bool, StoreError> {
    let services = &hub.engine.services;
    let current = match evaluator {
        Some(current) => current,
        None => evaluator.insert(Evaluator::load(&*services.store, services.clock.now()).await?),
    };
    let more = current.evaluate(hub).await?;
    services.alerts.set_firing(services.alerts.targets().iter().flat_map(|target| {
        current.records(&target.name).filter(|record| record.is_firing()).map(|record| record.condition)
    }));
    Ok(more)
}

//! Delivers messages: one attempt at a time for each target, on one node.
//!
//! In: the waiting deliveries of the store. Out: attempts through the channels, and their results in the store. Targets are independent
//! of each other. An attempt is claimed by a compare-and-set before it is made, so that two nodes do not make it at the same time; if its
//! node dies, another one makes it again, with the same id.

use std::{collections::HashSet, sync::Weak, time::Duration};

use smol_str::SmolStr;
use tokio::{
    task::{JoinError, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    alerts::{
        self, AlertMessage, AlertSendError, AlertTarget, Deliveries, DeliveryAttempt, DisabledTarget, MAX_ATTEMPT,
        Verdict, WaitingDelivery, number_of, target_id,
    },
    engine::Engine,
};
use toolhub_storage::backend::{Batch, Expect, Row, RowKey, RowVersion, StoreError};
use toolhub_types::{event_kind::EventKind, timestamp::Timestamp};

/// How often due attempts are looked for.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long attempts may take when the hub stops.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// Number of waiting messages of a target that are looked at.
const PAGE: usize = 50;

/// Delivers messages until the hub stops. Attempts that are being made then have a moment to end; others are made again by the next
/// hub of the store.
pub(in crate::hub) async fn run(hub: Weak<Engine>, stopped: CancellationToken) {
    let mut attempts: JoinSet<Attempted> = JoinSet::new();
    let mut busy: HashSet<SmolStr> = HashSet::new();
    loop {
        let Some(engine) = hub.upgrade() else { return };
        while let Some(ended) = attempts.try_join_next() {
            finish(&engine, &mut busy, ended).await;
        }
        let handle = engine.services.alerts.clone();
        let deliverable = handle.deliverable.notified();
        if engine.nodes.is_maintainer() {
            for target in handle.targets().iter() {
                if busy.contains(&target.name) {
                    continue;
                }
                match claim_next(&engine, target).await {
                    Ok(Some(claimed)) => {
                        busy.insert(target.name.clone());
                        attempts.spawn(attempt(target.clone(), claimed, engine.services.clock.now()));
                    }
                    Ok(None) => {}
                    Err(error) => tracing::debug!(%error, target = %target.name, "alerts not read; retrying"),
                }
            }
        }
        let is_idle = handle.targets().is_empty();
        drop(engine);
        let ended = tokio::select! {
            biased;
            () = stopped.cancelled() => break,
            Some(ended) = attempts.join_next() => Some(ended),
            () = deliverable => None,
            () = tokio::time::sleep(INTERVAL), if !is_idle => None,
        };
        if let (Some(ended), Some(engine)) = (ended, hub.upgrade()) {
            finish(&engine, &mut busy, ended).await;
        }
    }
    let rest = async {
        while let Some(ended) = attempts.join_next().await {
            let Some(engine) = hub.upgrade() else { return };
            finish(&engine, &mut busy, ended).await;
        }
    };
    let _ = tokio::time::timeout(STOP_GRACE, rest).await;
}

/// An attempt that was made. It holds no reference to the hub, so that a target that hangs does not keep the hub.
struct Attempted {
    target: AlertTarget,
    claimed: Claimed,
    attempt: DeliveryAttempt,
    retry_after: Option<Duration>,
}

async fn attempt(target: AlertTarget, claimed: Claimed, at: Timestamp) -> Attempted {
    let (attempt, retry_after) = send(&target, &claimed.waiting.delivery.message, at).await;
    Attempted { target, claimed, attempt, retry_after }
}

/// Sends a message once. Returns also after which time the target wants the next attempt.
pub(super) async fn send(
    target: &AlertTarget,
    message: &AlertMessage,
    at: Timestamp,
) -> (DeliveryAttempt, Option<Duration>) {
    let began = Instant::now();
    let sent = tokio::time::timeout(MAX_ATTEMPT, target.channel.send(message, at)).await;
    let result = sent.unwrap_or_else(|_| Err(AlertSendError(format!("no answer within {} s", MAX_ATTEMPT.as_secs()))));
    (DeliveryAttempt::new(at, began.elapsed(), &result), result.ok().and_then(|response| response.retry_after))
}

/// Counts and stores an attempt.
async fn finish(engine: &Engine, busy: &mut HashSet<SmolStr>, ended: Result<Attempted, JoinError>) {
    let Attempted { target, mut claimed, attempt, retry_after } = match ended {
        Ok(attempted) => attempted,
        // Whose it was is not known any more; a second attempt at a target does no harm.
        Err(error) => {
            tracing::error!(%error, "an attempt to deliver alerts panicked");
            return busy.clear();
        }
    };
    busy.remove(&target.name);
    let (services, meter) = (&engine.services, engine.services.alerts.meter(&target.name));
    let now = services.clock.now();
    let verdict = claimed.waiting.finish_attempt(attempt, retry_after, (now, fastrand::f64()));
    meter.count(verdict == Verdict::Delivered);
    // What is not stored is attempted again, with the same id.
    if let Err(error) = store_result(engine, &target, &claimed, verdict, now).await {
        tracing::warn!(%error, target = %target.name, "result of an alert delivery not stored");
    }
}

/// A delivery that this node may attempt now.
struct Claimed {
    number: u64,
    waiting: WaitingDelivery,
    version: RowVersion,
}

/// The next delivery of a target that is due, claimed for this node. Messages about one thing stay in order.
async fn claim_next(engine: &Engine, target: &AlertTarget) -> Result<Option<Claimed>, StoreError> {
    let (store, now) = (&engine.services.store, engine.services.clock.now());
    let page = store.scan(Deliveries::Waiting.scan(&target.name).limit(PAGE), now).await?;
    if page.rows.is_empty() || disabled(engine, target).await?.is_some() {
        return Ok(None);
    }
    let mut held: HashSet<SmolStr> = HashSet::new();
    for (key, row) in &page.rows {
        let Some(waiting) = alerts::read::<WaitingDelivery>(key, row) else { continue };
        let things = waiting.delivery.message.alerts.iter().map(|alert| alert.thing.clone());
        let is_sent_elsewhere =
            waiting.is_claimed_elsewhere(&engine.journal.node, |node| engine.nodes.was_alive(node), now);
        let is_due = waiting.delivery.next_attempt <= now && !is_sent_elsewhere;
        if is_due && things.clone().all(|thing| !held.contains(&thing)) {
            return claim(engine, key, row, waiting, now).await;
        }
        if waiting.holds_target || is_sent_elsewhere {
            return Ok(None);
        }
        held.extend(things);
    }
    Ok(None)
}

async fn claim(
    engine: &Engine,
    key: &RowKey,
    row: &Row,
    mut waiting: WaitingDelivery,
    now: Timestamp,
) -> Result<Option<Claimed>, StoreError> {
    waiting.claim(engine.journal.node.clone(), now);
    let write = alerts::put(key.id.clone(), &waiting, Expect::Same(row.version), row.expires)?;
    let batch = Batch::new(alerts::partition()).with(write);
    let stamp = batch.stamp;
    let number = number_of(&key.id).unwrap_or_default();
    match engine.services.store.commit(batch, now).await {
        Ok(versions) => {
            let version = RowVersion { number: versions.first().copied().unwrap_or_default(), stamp };
            Ok(Some(Claimed { number, waiting, version }))
        }
        // Another node was faster.
        Err(StoreError::Conflict { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Stores the result of an attempt.
async fn store_result(
    engine: &Engine,
    target: &AlertTarget,
    claimed: &Claimed,
    verdict: Verdict,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Claimed { number, waiting, version } = claimed;
    let (id, delivery) = (Deliveries::Waiting.row_id(&target.name, *number), &waiting.delivery);
    let mut batch = Batch::new(alerts::partition());
    let answer = delivery.last.as_ref().map_or("", |last| &last.answer);
    let reason = match delivery.last.as_ref().and_then(|last| last.status) {
        Some(status) => format!("the target answered {status}"),
        None => format!("the target did not answer: {answer}"),
    };
    match verdict {
        Verdict::Delivered | Verdict::GivenUp => {
            batch.writes.push(alerts::remove(id, Expect::Same(*version)));
            batch.writes.push(alerts::put_finished(*number, delivery, now)?);
        }
        Verdict::Retry | Verdict::Disabled => {
            let expires = Some(delivery.message.at + alerts::MAX_DELIVERY + alerts::RETENTION);
            batch.writes.push(alerts::put(id, waiting, Expect::Same(*version), expires)?);
        }
    }
    if verdict == Verdict::Disabled {
        let fingerprint = target.channel.fingerprint();
        let disabled =
            DisabledTarget { since: now, reason: format!("{reason}: it wants no more messages"), fingerprint };
        batch.writes.push(alerts::put(target_id(&target.name), &disabled, Expect::Any, None)?);
    }
    engine.services.store.commit(batch, now).await?;
    if matches!(verdict, Verdict::GivenUp | Verdict::Disabled) {
        let is_disabled = verdict == Verdict::Disabled;
        tracing::error!(target = %target.name, message = %delivery.message.id, reason, is_disabled, "alert not delivered");
        let (alert_target, message_id) = (target.name.clone(), delivery.message.id.clone());
        let event = EventKind::AlertFailed { alert_target, message_id, reason, disabled: is_disabled };
        engine.services.events.emit(now, event);
    }
    Ok(())
}

/// That a target is disabled, unless its address has changed since.
pub(super) async fn disabled(engine: &Engine, target: &AlertTarget) -> Result<Option<DisabledTarget>, StoreError> {
    let key = alerts::row_key(target_id(&target.name));
    let row =
        engine.services.store.load(std::slice::from_ref(&key), engine.services.clock.now()).await?.pop().flatten();
    let disabled = row.and_then(|row| alerts::read::<DisabledTarget>(&key, &row));
    Ok(disabled.filter(|disabled| disabled.fingerprint == target.channel.fingerprint()))
}

//! Alerts: notifies operators of conditions that need attention.
//!
//! In: targets, and signals of what happens. Out: records of alerts, messages about them, and when a message is delivered next.
//! `condition.rs` is the table of conditions, `record.rs` decides when an alert is reported, `grouping.rs` which alerts become one message,
//! `outbox.rs` when a message is sent again. Everything here is data and decisions: `hub/alerts` observes the hub, stores and sends;
//! the channels are outside the core.

mod channel;
mod condition;
mod grouping;
mod handle;
mod message;
mod outbox;
mod record;
mod signal;
mod store;
mod target;
#[cfg(test)]
mod testing;

use std::time::Duration;

pub use channel::{AlertChannel, AlertResponse, AlertSendError};
pub use condition::{Condition, UnknownCondition};
pub(crate) use grouping::{DueAlert, SentLately, group};
#[doc(hidden)]
pub use handle::AlertSignals;
pub(crate) use handle::Alerts;
pub use handle::DeliveryCounts;
pub use message::{Alert, AlertChange, AlertMessage, AlertPhase};
pub use outbox::{AlertDelivery, DeliveryAttempt, DeliveryState};
pub(crate) use outbox::{MAX_ATTEMPT, Verdict, WaitingDelivery};
pub(crate) use record::AlertRecord;
pub(crate) use signal::{PREFIX as SIGNAL_PREFIX, Signal, SignalKind};
pub(crate) use store::{
    Deliveries, DisabledTarget, HEAD_ID, Head, NODE_PREFIX, RECORD_PREFIX, node_id, number_of, partition, put,
    put_finished, read, record_id, remove, row_key, scan, target_id,
};
pub use target::{AlertTarget, ErrorRate};

/// For how long the delivery of a message is tried.
pub(crate) const MAX_DELIVERY: Duration = Duration::from_secs(24 * 3600);
/// How long delivered messages can be listed.
pub(crate) const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

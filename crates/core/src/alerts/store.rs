//! The rows of alerts.
//!
//! In: records of alerts, deliveries and targets. Out: batches and pages. All of them are in one partition, so that the record of an
//! alert and the message about it are one commit. The row `head` names the last number of a message; each commit of alerts expects it
//! unchanged, so two nodes never report the same change. Signals are in the partitions of what they are about.

use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};

use super::{AlertDelivery, record::AlertRecord, signal::LAYOUT};
use toolhub_storage::backend::{
    Change, Cursor, Durability, Expect, Partition, PartitionKind, Row, RowKey, Scan, Scope, StoreError, Table, Write,
    decode, encode,
};
use toolhub_types::{digest, ids::Tenant, timestamp::Timestamp};

pub(crate) const HEAD_ID: SmolStr = SmolStr::new_static("head");
pub(crate) const RECORD_PREFIX: &str = "alert/";
const WAITING_PREFIX: &str = "out/";
const FINISHED_PREFIX: &str = "log/";
const TARGET_PREFIX: &str = "target/";
pub(crate) const NODE_PREFIX: &str = "node/";

/// The last number of a message, and the signals that the last commit took into account: they may not be removed yet.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) last: u64,
    pub(crate) consumed: Vec<SmolStr>,
}

/// That a target wants no messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DisabledTarget {
    pub(crate) since: Timestamp,
    pub(crate) reason: String,
    pub(crate) fingerprint: String,
}

/// Which deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deliveries {
    Waiting,
    Finished,
}

impl Deliveries {
    fn prefix(self, target: &str) -> String {
        let prefix = if self == Self::Waiting { WAITING_PREFIX } else { FINISHED_PREFIX };
        format!("{prefix}{target}/")
    }

    /// The row of the message with this number.
    pub(crate) fn row_id(self, target: &str, number: u64) -> SmolStr {
        format_smolstr!("{}{number:016x}", self.prefix(target))
    }

    pub(crate) fn scan(self, target: &str) -> Scan {
        Scan::new(Table::Alerts, Scope::Partition(partition())).prefix(self.prefix(target))
    }

    /// The cursor after which a page begins.
    pub(crate) fn cursor(self, target: &str, number: u64) -> Cursor {
        Cursor(row_key(self.row_id(target, number)))
    }
}

/// The number of a message, of its row.
pub(crate) fn number_of(id: &str) -> Option<u64> {
    u64::from_str_radix(id.rsplit_once('/')?.1, 16).ok()
}

pub(crate) fn partition() -> Partition {
    Partition { tenant: Tenant::default(), kind: PartitionKind::Alerts }
}

pub(crate) fn row_key(id: SmolStr) -> RowKey {
    RowKey { partition: partition(), table: Table::Alerts, id }
}

pub(crate) fn scan(prefix: &str) -> Scan {
    Scan::new(Table::Alerts, Scope::Partition(partition())).prefix(prefix)
}

/// The key of an alert: target, condition and thing.
pub(crate) fn record_id(target: &str, record: &AlertRecord) -> SmolStr {
    let tenant = record.tenant.as_ref().map_or("", Tenant::as_str);
    // Things may have long names with any characters.
    let thing = digest::sha256_hex([tenant.as_bytes(), record.thing.as_bytes()]);
    format_smolstr!("{RECORD_PREFIX}{target}/{}/{}", record.condition, &thing[..32])
}

pub(crate) fn target_id(target: &str) -> SmolStr {
    format_smolstr!("{TARGET_PREFIX}{target}")
}

pub(crate) fn node_id(node: &str) -> SmolStr {
    format_smolstr!("{NODE_PREFIX}{node}")
}

pub(crate) fn put(
    id: SmolStr,
    record: &impl Serialize,
    expect: Expect,
    expires: Option<Timestamp>,
) -> Result<Write, StoreError> {
    let value = encode(Table::Alerts, &id, record)?;
    let change = Change::Put { value, schema: LAYOUT, expires };
    Ok(Write { table: Table::Alerts, id, expect, change, durability: Durability::KillSafe })
}

pub(crate) fn remove(id: SmolStr, expect: Expect) -> Write {
    Write { table: Table::Alerts, id, expect, change: Change::Remove, durability: Durability::KillSafe }
}

/// The record in a row; `None`, and a line in the log, if it cannot be read.
pub(crate) fn read<T: serde::de::DeserializeOwned>(key: &RowKey, row: &Row) -> Option<T> {
    let read = decode::<T>(Table::Alerts, &key.id, LAYOUT, row).inspect_err(StoreError::log_skipped);
    read.ok().map(|(record, _)| record)
}

/// The write of a finished delivery.
pub(crate) fn put_finished(number: u64, delivery: &AlertDelivery, now: Timestamp) -> Result<Write, StoreError> {
    let id = Deliveries::Finished.row_id(&delivery.message.target, number);
    put(id, delivery, Expect::Any, Some(now + super::RETENTION))
}

//! Requests between nodes: what one node asks of the node that runs a call, or of a certain node.
//!
//! In: a call that runs elsewhere, and a wish to cancel it or the result of its external execution; or a node and a request of another
//! crate. Out: rows, those about a call in its partition, which the node concerned watches and answers. `hub/requests.rs` and
//! `hub/node_requests.rs` act on them.

mod handlers;
mod node;

pub(crate) use handlers::NodeRequestHandlers;
pub(crate) use node::{
    NodeAnswer, NodeRequest, NodeRequestKey, load_node_request, node_prefix, node_requests, put_node_request,
};

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use smol_str::format_smolstr;

use toolhub_storage::backend::{
    Backend, Batch, Change, Durability, Expect, Partition, Row, RowKey, RowVersion, Scan, Scope, StoreError, Table,
    Write, decode, encode, read_all,
};
use toolhub_types::{
    effect::Effect,
    error::{ErrorKind, ToolError},
    ids::CallId,
    outcome::{Outcome, Status},
    problem::Problem,
    timestamp::Timestamp,
};

const LAYOUT: u32 = 1;
/// How long a request is kept that no node removes.
const TTL: Duration = Duration::from_secs(3600);
const CANCEL: &str = "cancel/call_";
const REPORT: &str = "report/call_";

/// What a request row asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// To cancel a call.
    Cancel(CallId),
    /// To accept the result of an external call.
    Report(CallId),
    /// What another crate asks of a node.
    Node,
}

/// The request of a row; `None` if it is none of a hub.
pub(crate) fn kind_of(key: &RowKey) -> Option<RequestKind> {
    let (kind, rest) = key.id.split_once('/')?;
    if kind == "node" {
        return Some(RequestKind::Node);
    }
    let call = rest.split('/').next()?.parse().ok()?;
    match kind {
        "cancel" => Some(RequestKind::Cancel(call)),
        "report" => Some(RequestKind::Report(call)),
        _ => None,
    }
}

/// The result of an external call, reported to another node than the one that runs it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReportRequest {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    value: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    error: Option<ReportedError>,
    /// What the node that runs the call says to it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) answer: Option<ReportAnswer>,
}

/// The answer to a reported result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReportAnswer {
    Accepted,
    Late,
    Early,
    NotExternal,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReportedError {
    kind: ErrorKind,
    /// Whether the tool refused: that kind has the name of another.
    #[serde(default)]
    is_refusal: bool,
    operator: String,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    effect: Option<Effect>,
    #[serde(default)]
    counts: Option<bool>,
    #[serde(default)]
    retryable: Option<bool>,
    #[serde(default, with = "toolhub_types::millis::option")]
    retry_after: Option<Duration>,
    #[serde(default)]
    connecting: bool,
    #[serde(default)]
    of_thread: bool,
    #[serde(default)]
    problems: Vec<Problem>,
}

impl ReportRequest {
    pub(crate) fn new(result: Result<Value, ToolError>) -> Self {
        match result {
            Ok(value) => Self { value: Some(value), error: None, answer: None },
            Err(error) => Self { value: None, error: Some(error.into()), answer: None },
        }
    }

    /// Whether a call ended with this result, as far as its record says.
    pub(crate) fn is_of(&self, outcome: &Outcome) -> bool {
        match (&self.error, &outcome.error) {
            (Some(reported), Some(error)) => reported.operator == error.operator,
            (None, None) => outcome.status == Status::Success && self.value.as_ref() == Some(&outcome.output),
            _ => false,
        }
    }

    /// The reported result.
    pub(crate) fn result(&self) -> Result<Value, ToolError> {
        match &self.error {
            Some(error) => Err(error.clone().into()),
            None => Ok(self.value.clone().unwrap_or_default()),
        }
    }
}

impl From<ToolError> for ReportedError {
    fn from(error: ToolError) -> Self {
        let ToolError {
            kind,
            operator,
            model,
            effect,
            counts,
            retryable,
            retry_after,
            connecting,
            of_thread,
            problems,
        } = error;
        let is_refusal = kind == ErrorKind::ToolRefused;
        Self {
            kind,
            is_refusal,
            operator,
            model,
            effect,
            counts,
            retryable,
            retry_after,
            connecting,
            of_thread,
            problems,
        }
    }
}

impl From<ReportedError> for ToolError {
    fn from(error: ReportedError) -> Self {
        let ReportedError {
            kind,
            is_refusal,
            operator,
            model,
            effect,
            counts,
            retryable,
            retry_after,
            connecting,
            of_thread,
            problems,
        } = error;
        let kind = if is_refusal { ErrorKind::ToolRefused } else { kind };
        Self { kind, operator, model, effect, counts, retryable, retry_after, connecting, of_thread, problems }
    }
}

/// The row of a request to cancel a call in this partition.
pub(crate) fn cancel_key(partition: Partition, call: CallId) -> RowKey {
    RowKey { partition, table: Table::Requests, id: format_smolstr!("cancel/{call}") }
}

/// A new row for the result of a call in this partition.
pub(crate) fn report_key(partition: Partition, call: CallId) -> RowKey {
    RowKey { partition, table: Table::Requests, id: format_smolstr!("report/{call}/{:016x}", fastrand::u64(..)) }
}

/// Writes a request to cancel a call.
pub(crate) async fn put_cancel(store: &dyn Backend, key: RowKey, now: Timestamp) -> Result<(), StoreError> {
    let change = Change::Put { value: b"{}".as_slice().into(), schema: LAYOUT, expires: Some(now + TTL) };
    commit(store, key, (Expect::Any, change), now).await
}

/// Writes a reported result, or the answer to it.
pub(crate) async fn put_report(
    store: &dyn Backend,
    key: RowKey,
    report: &ReportRequest,
    replaced: Option<RowVersion>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let value = encode(Table::Requests, &key.id, report)?;
    let change = Change::Put { value, schema: LAYOUT, expires: Some(now + TTL) };
    commit(store, key, (replaced.map_or(Expect::Absent, Expect::Same), change), now).await
}

/// Whether the request is there.
pub(crate) async fn exists(store: &dyn Backend, key: &RowKey, now: Timestamp) -> Result<bool, StoreError> {
    Ok(load(store, key, now).await?.is_some())
}

/// A reported result with its row version.
pub(crate) async fn load_report(
    store: &dyn Backend,
    key: &RowKey,
    now: Timestamp,
) -> Result<Option<(ReportRequest, RowVersion)>, StoreError> {
    load(store, key, now).await?.map(|row| decode(key.table, &key.id, LAYOUT, &row)).transpose()
}

/// Removes a request that was answered. One that stays expires.
pub(crate) async fn remove(store: &dyn Backend, key: RowKey, now: Timestamp) {
    if let Err(error) = commit(store, key, (Expect::Any, Change::Remove), now).await {
        tracing::debug!(%error, "request of a node not removed");
    }
}

/// The keys of all requests that concern calls, of all tenants, and of those to this node.
pub(crate) async fn all(store: &dyn Backend, node: &str, now: Timestamp) -> Result<Vec<RowKey>, StoreError> {
    let mut keys = Vec::new();
    for prefix in [CANCEL, REPORT, &node_prefix(node)] {
        let rows = read_all(store, Scan::new(Table::Requests, Scope::All).prefix(prefix), now).await?;
        keys.extend(rows.into_iter().map(|(key, _)| key));
    }
    Ok(keys)
}

async fn load(store: &dyn Backend, key: &RowKey, now: Timestamp) -> Result<Option<Row>, StoreError> {
    Ok(store.load(std::slice::from_ref(key), now).await?.pop().flatten())
}

async fn commit(
    store: &dyn Backend,
    key: RowKey,
    (expect, change): (Expect, Change),
    now: Timestamp,
) -> Result<(), StoreError> {
    let RowKey { partition, table, id } = key;
    let write = Write { table, id, expect, change, durability: Durability::KillSafe };
    store.commit(Batch::new(partition).with(write), now).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhub_types::ids::Tenant;

    #[test]
    fn a_request_is_known_by_its_row_and_a_reported_error_comes_through_whole() {
        let call = CallId::mint(Timestamp::from_millis(1));
        let partition = Partition::for_call(Tenant::default(), None, call);
        assert_eq!(kind_of(&cancel_key(partition.clone(), call)), Some(RequestKind::Cancel(call)));
        assert_eq!(kind_of(&report_key(partition.clone(), call)), Some(RequestKind::Report(call)));
        let other = RowKey { partition, table: Table::Requests, id: "cancel/run_1".into() };
        assert_eq!(kind_of(&other), None);
        let error = ToolError { retry_after: Some(Duration::from_secs(3)), ..ToolError::refused("no") };
        let text = serde_json::to_string(&ReportRequest::new(Err(error.clone()))).unwrap();
        let read: ReportRequest = serde_json::from_str(&text).unwrap();
        assert_eq!(format!("{:?}", read.result().unwrap_err()), format!("{error:?}"));
    }
}

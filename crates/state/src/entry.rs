//! Views of states for the API: entries, context summaries and totals.
//!
//! In: rows of the store. Out: serializable data. Does not read or write the store.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use smol_str::SmolStr;

use super::{ContextId, StateError, StateKind, StateTag};
use toolhub_storage::backend::Row;
use toolhub_types::{
    ids::{StateName, ThreadId},
    timestamp::Timestamp,
};

/// One kind of state of one context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StateEntry {
    /// The context and the kind: `{thread}/{state}/{kind}`.
    pub state_id: SmolStr,
    /// The context.
    pub context_id: ContextId,
    /// The kind.
    pub kind: StateKind,
    /// The data: a JSON object, unless a typed tool wrote another JSON type.
    pub data: Value,
    /// When it was created.
    #[serde(rename = "createdAt")]
    pub created: Timestamp,
    /// When it was last written.
    #[serde(rename = "updatedAt")]
    pub updated: Timestamp,
    /// When it expires.
    #[serde(rename = "expiresAt", skip_serializing_if = "Option::is_none", default)]
    pub expires: Option<Timestamp>,
    /// Number of writes since it was created; 0 for kind `cache`.
    pub version: u64,
    /// Identifies this write, for [`StateCondition::Tag`](crate::StateCondition::Tag); `None` for kind `cache`.
    #[serde(rename = "etag", skip_serializing_if = "Option::is_none", default)]
    pub tag: Option<StateTag>,
}

impl StateEntry {
    pub(crate) fn from_row(context: &ContextId, kind: StateKind, row: &Row) -> Result<Self, StateError> {
        let state_id = state_id(context, kind);
        let data = read_data(context, kind, row)?;
        let version = reported_version(kind, row.version.number);
        let Row { created, updated, expires, .. } = *row;
        let tag = (kind != StateKind::Cache).then(|| row.version.into());
        Ok(Self { state_id, context_id: context.clone(), kind, data, created, updated, expires, version, tag })
    }
}

/// The id of one kind of state of a context.
pub fn state_id(context: &ContextId, kind: StateKind) -> SmolStr {
    smol_str::format_smolstr!("{context}/{kind}")
}

/// The version as reported by the API: kind `cache` always reports 0.
pub(crate) fn reported_version(kind: StateKind, row: u64) -> u64 {
    if kind == StateKind::Cache { 0 } else { row }
}

/// Parses the data of a row.
pub fn read_data(context: &ContextId, kind: StateKind, row: &Row) -> Result<Value, StateError> {
    serde_json::from_slice(&row.value).map_err(|error| {
        let reason = format!("it is not JSON (line {}, column {})", error.line(), error.column());
        StateError::Unreadable { state: state_id(context, kind), reason }
    })
}

/// Summary of a context, without the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ContextInfo {
    /// The context.
    pub id: ContextId,
    /// The name of its state.
    pub tool_type: StateName,
    /// Its thread; `None` when all threads share it.
    #[serde(rename = "threadId", skip_serializing_if = "Option::is_none", default)]
    pub thread: Option<ThreadId>,
    /// When the oldest of its states was created.
    #[serde(rename = "createdAt")]
    pub created: Timestamp,
    /// When one of its states was last written.
    #[serde(rename = "updatedAt")]
    pub updated: Timestamp,
    /// Its states.
    pub kinds: BTreeMap<StateKind, KindInfo>,
}

/// Summary of one kind of state, without the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KindInfo {
    /// Number of writes since it was created; 0 for kind `cache`.
    pub version: u64,
    /// The size of its JSON text, in bytes.
    pub bytes: usize,
    /// When it expires.
    #[serde(rename = "expiresAt", skip_serializing_if = "Option::is_none", default)]
    pub expires: Option<Timestamp>,
    #[serde(skip)]
    pub(crate) created: Timestamp,
    #[serde(skip)]
    pub(crate) updated: Timestamp,
}

impl KindInfo {
    pub(crate) fn from_row(kind: StateKind, row: &Row) -> Self {
        let Row { created, updated, expires, .. } = *row;
        Self { version: reported_version(kind, row.version.number), bytes: row.value.len(), expires, created, updated }
    }
}

impl ContextInfo {
    /// `None` when the context holds no state.
    pub(crate) fn from_kinds(id: ContextId, kinds: BTreeMap<StateKind, KindInfo>) -> Option<Self> {
        let created = kinds.values().map(|kind| kind.created).min()?;
        let updated = kinds.values().map(|kind| kind.updated).max()?;
        let (tool_type, thread) = (id.state().clone(), id.thread().cloned());
        Some(Self { id, tool_type, thread, created, updated, kinds })
    }
}

/// One page of contexts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ContextPage {
    /// The contexts, sorted by the name of their state.
    pub contexts: Vec<ContextInfo>,
    /// The cursor of the next page; `None` on the last page.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}

/// Totals of the stored states of a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StateStats {
    /// Number of contexts.
    pub contexts: usize,
    /// Number of states of each kind.
    pub entries: BTreeMap<StateKind, usize>,
    /// Total size of their JSON text, in bytes.
    pub bytes: usize,
}

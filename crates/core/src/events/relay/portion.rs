//! Rows of relayed events: each node writes numbered portions into a ring of rows.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use smol_str::{SmolStr, format_smolstr};

use super::super::Event;
use toolhub_types::{
    event_kind::EventKind,
    ids::{Tenant, ThreadId},
    timestamp::Timestamp,
};

/// How long a portion is kept that is not overwritten.
pub(super) const PORTION_TTL: Duration = Duration::from_secs(60);
/// Number of rows of a node. A follower that is this many portions behind misses some.
const RING_SIZE: u64 = 64;
const PREFIX: &str = "events/";

/// The row of a portion.
pub(super) struct PortionRow {
    pub(super) node: SmolStr,
    pub(super) number: u64,
}

impl PortionRow {
    pub(super) fn id(&self) -> SmolStr {
        format_smolstr!("{PREFIX}{}/{:02}", self.node, self.number % RING_SIZE)
    }

    /// The node and the place in the ring.
    pub(super) fn parse(id: &str) -> Option<Self> {
        let (node, number) = id.strip_prefix(PREFIX)?.split_once('/')?;
        Some(Self { node: node.into(), number: number.parse().ok()? })
    }
}

/// A portion as it is written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Wire<'a> {
    pub(super) number: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_incomplete: bool,
    pub(super) events: Vec<&'a Event>,
}

/// A portion as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Portion {
    pub(super) number: u64,
    /// Whether events before it were lost.
    #[serde(default)]
    pub(super) is_incomplete: bool,
    pub(super) events: Vec<RelayedEvent>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RelayedEvent {
    event: SmolStr,
    timestamp: Timestamp,
    tenant: Option<Tenant>,
    thread_id: Option<ThreadId>,
    #[serde(flatten)]
    data: Map<String, Value>,
}

impl RelayedEvent {
    /// The event; `None` if this version does not know its kind.
    pub(super) fn into_event(self) -> Option<Event> {
        let Self { event, timestamp, tenant, thread_id: thread, data } = self;
        let kind = EventKind::from_fields(&event, data)?;
        Some(Event { id: None, timestamp, tenant, thread, kind })
    }
}

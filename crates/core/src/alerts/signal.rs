//! Signals: that a condition begins, changes, ends or happens.
//!
//! In: what a module knows at the moment of a change. Out: a row of the table `alerts` that is committed together with the change, so
//! that no alert is lost when the process is killed. `hub/alerts` reads and removes the rows. Also the form of everything else that the
//! hub observes. A signal holds no arguments, results or secrets.

use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};

use super::Condition;
use toolhub_storage::backend::{Change, Durability, Expect, StoreError, Table, Write, encode};
use toolhub_types::{ids::Tenant, timestamp::Timestamp, tool::ToolName};

pub(crate) const LAYOUT: u32 = 1;
/// The prefix of the rows of signals.
pub(crate) const PREFIX: &str = "signal/";

/// What is observed of a condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Signal {
    pub(crate) condition: Condition,
    /// What it is about; unique among the things of the condition.
    pub(crate) thing: SmolStr,
    /// The tenant it concerns; `None` if it concerns all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<Tenant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<ToolName>,
    /// The MCP server that brings the tool: what happens to all of its tools is one message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<SmolStr>,
    /// The only target it is meant for: thresholds differ between targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<SmolStr>,
    pub(crate) at: Timestamp,
    pub(crate) kind: SignalKind,
    /// The state in a word, such as `failed`.
    pub(crate) state: SmolStr,
    /// Why, in the words of explanations.
    pub(crate) reason: String,
    /// Whether a tool is available again only on probation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_on_probation: bool,
    /// The version of the record that changed: an older signal of the same thing is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<u64>,
}

/// What a signal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SignalKind {
    /// The condition holds.
    Active,
    /// The condition does not hold.
    Ended,
    /// It happened, and has no end.
    Happened,
}

impl Signal {
    /// That a condition holds.
    pub(crate) fn active(
        condition: Condition,
        thing: impl Into<SmolStr>,
        at: Timestamp,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            condition,
            thing: thing.into(),
            tenant: None,
            tool: None,
            server: None,
            target: None,
            at,
            kind: SignalKind::Active,
            state: SmolStr::new_static("active"),
            reason: reason.into(),
            is_on_probation: false,
            version: None,
        }
    }

    /// That something without an end happened.
    pub(crate) fn happened(
        condition: Condition,
        thing: impl Into<SmolStr>,
        at: Timestamp,
        reason: impl Into<String>,
    ) -> Self {
        let (kind, state) = (SignalKind::Happened, SmolStr::new_static("happened"));
        Self { kind, state, ..Self::active(condition, thing, at, reason) }
    }

    pub(crate) fn tenant(self, tenant: &Tenant) -> Self {
        Self { tenant: Some(tenant.clone()), ..self }
    }

    pub(crate) fn tool(self, tool: &ToolName) -> Self {
        Self { tool: Some(tool.clone()), ..self }
    }

    /// The write that stores it with the change it is about, in any partition.
    pub(crate) fn write(&self, durability: Durability) -> Result<Write, StoreError> {
        let id = format_smolstr!("{PREFIX}{:015}-{:016x}", self.at.millis().max(0), fastrand::u64(..));
        let value = encode(Table::Alerts, &id, self)?;
        // It is removed when it was read. Without a node that sends alerts, it must not stay for ever.
        let change = Change::Put { value, schema: LAYOUT, expires: Some(self.at + super::MAX_DELIVERY) };
        Ok(Write { table: Table::Alerts, id, expect: Expect::Absent, change, durability })
    }
}

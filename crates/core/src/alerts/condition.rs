//! The conditions that alerts are sent for, as one table.
//!
//! Each row says how a condition begins and ends, how long it must hold before a message is sent, and the words of its messages. What
//! observes a condition is elsewhere: statuses, calls, approvals and runs store signals with their changes, the hub reads the rest.

use std::{fmt, str::FromStr, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A condition that an operator can be alerted of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub enum Condition {
    /// The shared status of a tool changed.
    #[serde(rename = "tool.status")]
    ToolStatus,
    /// A tool is withheld from all threads.
    #[serde(rename = "tool.withheld")]
    ToolWithheld,
    /// An MCP server is not connected.
    #[serde(rename = "server.down")]
    ServerDown,
    /// A node died.
    #[serde(rename = "node.gone")]
    NodeGone,
    /// The store answers slowly or refuses writes.
    #[serde(rename = "store.slow")]
    StoreSlow,
    /// A call waits for the approval of a person.
    #[serde(rename = "approval.waiting")]
    ApprovalWaiting,
    /// An approval expired unanswered.
    #[serde(rename = "approval.expired")]
    ApprovalExpired,
    /// Runs of agents failed.
    #[serde(rename = "run.failed")]
    RunFailed,
    /// Runs of agents reached a limit of steps, tokens or time.
    #[serde(rename = "run.budget")]
    RunBudget,
    /// Calls were interrupted by the end of their node.
    #[serde(rename = "calls.interrupted")]
    CallsInterrupted,
    /// The store lost acknowledged commits.
    #[serde(rename = "store.lost")]
    StoreLost,
    /// Too many calls of a tool fail.
    #[serde(rename = "errors.high")]
    ErrorsHigh,
    /// A queue of calls is nearly full, or refuses calls.
    #[serde(rename = "queue.full")]
    QueueFull,
    /// Records or events were dropped.
    #[serde(rename = "records.dropped")]
    RecordsDropped,
    /// An API key expires soon.
    #[serde(rename = "key.expiring")]
    KeyExpiring,
    /// The last backup is too old.
    #[serde(rename = "backup.old")]
    BackupOld,
    /// A reload of the configuration was refused.
    #[serde(rename = "reload.refused")]
    ReloadRefused,
}

/// How a condition is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConditionKind {
    /// Each change of the state is reported, also from one bad state to another.
    EachChange,
    /// Begin and end are reported.
    Lasting,
    /// It has no end; several within a minute are counted together.
    Instant,
}

/// A row of the table.
pub(crate) struct ConditionRow {
    condition: Condition,
    name: &'static str,
    pub(crate) kind: ConditionKind,
    /// How long it must hold before it is reported, unless the target says so.
    pub(crate) hold: Duration,
    /// What one of its things is called, and several.
    pub(crate) nouns: (&'static str, &'static str),
    /// What is the case, after the name of the thing.
    pub(crate) begun: &'static str,
    /// What is the case when it is over.
    pub(crate) ended: &'static str,
    /// What to do.
    pub(crate) advice: &'static str,
    /// The page of the dashboard, with `{}` in place of the thing's name.
    pub(crate) page: &'static str,
}

const NO_HOLD: Duration = Duration::ZERO;
const MINUTE: Duration = Duration::from_secs(60);

const TOOL: (&str, &str) = ("tool", "tools");
const STORE: (&str, &str) = ("node", "nodes");

impl Condition {
    /// All conditions, in the order of the documentation.
    pub const ALL: [Self; 17] = [
        Self::ToolStatus,
        Self::ToolWithheld,
        Self::ServerDown,
        Self::NodeGone,
        Self::StoreSlow,
        Self::ApprovalWaiting,
        Self::ApprovalExpired,
        Self::RunFailed,
        Self::RunBudget,
        Self::CallsInterrupted,
        Self::StoreLost,
        Self::ErrorsHigh,
        Self::QueueFull,
        Self::RecordsDropped,
        Self::KeyExpiring,
        Self::BackupOld,
        Self::ReloadRefused,
    ];

    /// The name in configuration and messages, such as `tool.status`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.row().name
    }

    /// How long it must hold before it is reported, unless a target says otherwise.
    #[must_use]
    pub fn default_hold(self) -> Duration {
        self.row().hold
    }

    /// Whether it is about tools, so that a target may select it by their names.
    #[must_use]
    pub fn is_about_tools(self) -> bool {
        self.row().nouns == TOOL || matches!(self, Self::ApprovalWaiting | Self::ApprovalExpired)
    }

    pub(crate) fn row(self) -> &'static ConditionRow {
        &TABLE[self as usize]
    }
}

#[rustfmt::skip]
static TABLE: [ConditionRow; Condition::ALL.len()] = [
    row(Condition::ToolStatus, "tool.status", ConditionKind::EachChange, NO_HOLD, TOOL, "is {state}", "is available again",
        "Look at the last failed calls of the tool. If its service is known to be down, put the tool in maintenance with a reason.", "tools/{}"),
    row(Condition::ToolWithheld, "tool.withheld", ConditionKind::Lasting, NO_HOLD, TOOL, "is withheld from all threads", "is offered again",
        "Look at the last failed calls of the tool, and at its service. The tool comes back by itself when a call succeeds.", "tools/{}"),
    row(Condition::ServerDown, "server.down", ConditionKind::Lasting, MINUTE, ("MCP server", "MCP servers"), "is not connected", "is connected again",
        "Look at the log of the server, and whether its program or address is reachable; then restart its connection.", "mcp-servers/{}"),
    row(Condition::NodeGone, "node.gone", ConditionKind::Lasting, NO_HOLD, ("node", "nodes"), "no longer answers", "is back",
        "Look at the machine and the log of the node, and start it again. Its calls were closed or taken over by the others.", "nodes"),
    row(Condition::StoreSlow, "store.slow", ConditionKind::Lasting, MINUTE, STORE, "has a slow store", "has a fast store again",
        "Look at the disk or the server of the store, its load and its free space.", ""),
    row(Condition::ApprovalWaiting, "approval.waiting", ConditionKind::Lasting, Duration::from_secs(120), ("approval", "approvals"),
        "waits for an answer", "no longer waits", "Answer the approval: without an answer in time the call is denied.", "approvals/{}"),
    row(Condition::ApprovalExpired, "approval.expired", ConditionKind::Instant, NO_HOLD, ("approval", "approvals"), "expired unanswered", "",
        "The call was denied. Assign a person to watch approvals, or allow the call by a rule.", "approvals"),
    row(Condition::RunFailed, "run.failed", ConditionKind::Instant, NO_HOLD, ("run", "runs"), "failed", "",
        "Look at the run: its error names the model or the tool that failed.", "threads"),
    row(Condition::RunBudget, "run.budget", ConditionKind::Instant, NO_HOLD, ("run", "runs"), "reached a limit", "",
        "Look at the run: it repeats itself, or its limit of steps, tokens or time is too small.", "threads"),
    row(Condition::CallsInterrupted, "calls.interrupted", ConditionKind::Instant, NO_HOLD, ("call", "calls"), "was interrupted", "",
        "Check what the calls did: their effect is unknown. Then make them again where that is safe.", "calls"),
    row(Condition::StoreLost, "store.lost", ConditionKind::Instant, NO_HOLD, ("node", "nodes"), "found acknowledged commits lost", "",
        "Read the event `store.lost`: it names threads and calls. Check the persistence of the store's server before the next fail-over.", ""),
    row(Condition::ErrorsHigh, "errors.high", ConditionKind::Lasting, MINUTE, TOOL, "fails too often", "fails seldom again",
        "Look at the errors of the tool, and at its service.", "tools/{}"),
    row(Condition::QueueFull, "queue.full", ConditionKind::Lasting, MINUTE, ("node", "nodes"), "has a full queue of calls", "has room in its queue again",
        "Find the tool whose calls wait. Raise its concurrency, or limit its callers.", ""),
    row(Condition::RecordsDropped, "records.dropped", ConditionKind::Lasting, MINUTE, ("node", "nodes"), "drops records or events", "records everything again",
        "The store does not keep up with writes. Look at its disk or server.", ""),
    row(Condition::KeyExpiring, "key.expiring", ConditionKind::Lasting, NO_HOLD, ("API key", "API keys"), "expires soon", "is renewed or gone",
        "Create a new key, give it to its holder, and revoke this one.", "settings"),
    row(Condition::BackupOld, "backup.old", ConditionKind::Lasting, NO_HOLD, ("store", "stores"), "has no recent backup", "has a recent backup again",
        "Run `toolhub backup` and look at its error; check the free space for backups.", ""),
    row(Condition::ReloadRefused, "reload.refused", ConditionKind::Lasting, NO_HOLD, ("node", "nodes"), "refused its new configuration", "runs its configuration again",
        "Run `toolhub config check` on that node, correct the file and reload. The earlier configuration is in force.", "settings"),
];

#[expect(clippy::too_many_arguments, reason = "one argument for each column of the table")]
const fn row(
    condition: Condition,
    name: &'static str,
    kind: ConditionKind,
    hold: Duration,
    nouns: (&'static str, &'static str),
    begun: &'static str,
    ended: &'static str,
    advice: &'static str,
    page: &'static str,
) -> ConditionRow {
    ConditionRow { condition, name, kind, hold, nouns, begun, ended, advice, page }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// No condition has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no condition `{0}`")]
pub struct UnknownCondition(String);

impl FromStr for Condition {
    type Err = UnknownCondition;

    fn from_str(text: &str) -> Result<Self, UnknownCondition> {
        let found = TABLE.iter().find(|row| row.name == text);
        found.map(|row| row.condition).ok_or_else(|| UnknownCondition(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_condition_has_its_own_row_and_is_read_from_its_name() {
        for condition in Condition::ALL {
            assert_eq!(condition.row().condition, condition);
            assert_eq!(condition.as_str().parse(), Ok(condition));
            assert_eq!(serde_json::to_value(condition).unwrap(), condition.as_str());
            assert!(condition.row().advice.ends_with('.'), "{condition}");
        }
        assert!("tool.gone".parse::<Condition>().is_err());
    }
}

//! Grants: standing approvals, given by an "always" answer.
//!
//! In: an answer and the tools it covers. Out: the grant, its row key, and whether it applies to a tool. A grant
//! answers one rule for tools as they were defined when it was given: other rules still ask, a changed tool asks again,
//! and a deny rule still denies.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{Answer, Approval, ApprovalOutcome, ToolVersion};
use toolhub_storage::backend::{Partition, PartitionKind, RowKey, Table};
use toolhub_types::{
    digest,
    ids::{ApprovalId, Caller, Tenant, ThreadId},
    json::CompactJson,
    timestamp::Timestamp,
    tool::{Definition, ToolName},
};

/// A standing approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Grant {
    /// The id of the grant.
    pub id: SmolStr,
    /// What it covers.
    pub covers: GrantScope,
    /// The rule it answers.
    pub rule: String,
    /// The fingerprints of the tools it applies to, when it was given. A tool that is missing or has changed asks
    /// again.
    pub definitions: BTreeMap<ToolName, String>,
    /// Who gave it.
    pub granted_by: Caller,
    /// When it was given.
    pub granted_at: Timestamp,
    /// The approval whose answer gave it.
    pub approval: ApprovalId,
}

/// What a grant covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "scope")]
#[non_exhaustive]
pub enum GrantScope {
    /// One tool in one thread.
    Thread {
        /// The tool.
        tool: ToolName,
        /// The thread.
        thread_id: ThreadId,
    },
    /// One tool in all threads of the tenant.
    Tool {
        /// The tool.
        tool: ToolName,
    },
    /// All tools of one server, in all threads of the tenant.
    Server {
        /// The server or document they were imported from.
        server: String,
    },
}

impl GrantScope {
    /// The scope of the grant that an answer gives; `None` for an answer that applies once. Fails when the call has no
    /// thread or server to cover.
    pub(crate) fn from_outcome(
        outcome: ApprovalOutcome,
        approval: &Approval<CompactJson>,
        tool: &Definition,
    ) -> Result<Option<Self>, &'static str> {
        let name = || approval.tool.clone();
        match outcome {
            ApprovalOutcome::ProceedAlways => match &approval.thread {
                Some(thread) => Ok(Some(Self::Thread { tool: name(), thread_id: thread.clone() })),
                None => Err("the call belongs to no thread; use `proceed_always_tool` or `proceed_once`"),
            },
            ApprovalOutcome::ProceedAlwaysTool => Ok(Some(Self::Tool { tool: name() })),
            ApprovalOutcome::ProceedAlwaysServer => match &tool.origin {
                Some(origin) => Ok(Some(Self::Server { server: origin.source.clone() })),
                None => Err("the tool comes from no server; use `proceed_always_tool` or `proceed_once`"),
            },
            ApprovalOutcome::ProceedOnce | ApprovalOutcome::ModifyWithEditor | ApprovalOutcome::Cancel => Ok(None),
        }
    }

    /// The scopes of all grants that would apply to a call of this tool.
    pub(crate) fn candidates(tool: &Definition, thread: Option<&ThreadId>) -> impl Iterator<Item = Self> {
        let name = &tool.name;
        let thread = thread.map(|thread| Self::Thread { tool: name.clone(), thread_id: thread.clone() });
        let server = tool.origin.as_ref().map(|origin| Self::Server { server: origin.source.clone() });
        [thread, Some(Self::Tool { tool: name.clone() }), server].into_iter().flatten()
    }

    /// The row key of a grant with this scope.
    pub(crate) fn key(&self, tenant: &Tenant, rule: &str) -> RowKey {
        let (scope, kind, subject) = match self {
            Self::Thread { tool, thread_id } => ("thread", PartitionKind::Thread(thread_id.clone()), tool.as_str()),
            Self::Tool { tool } => ("tool", PartitionKind::Grants, tool.as_str()),
            Self::Server { server } => ("server", PartitionKind::Grants, server.as_str()),
        };
        let thread = if let Self::Thread { thread_id, .. } = self { thread_id.as_str() } else { "" };
        let hash = digest::sha256_hex([scope, thread, subject, rule].map(str::as_bytes));
        let partition = Partition { tenant: tenant.clone(), kind };
        RowKey { partition, table: Table::Grants, id: smol_str::format_smolstr!("gr_{}", &hash[..32]) }
    }
}

impl Grant {
    /// The grant that an answer gives for these tools.
    pub(crate) fn new(
        key: &RowKey,
        covers: GrantScope,
        approval: &Approval<CompactJson>,
        answer: &Answer,
        tools: &[ToolVersion<'_>],
    ) -> Self {
        Self {
            id: key.id.clone(),
            covers,
            rule: approval.rule.clone(),
            definitions: tools.iter().map(|tool| (tool.definition.name.clone(), tool.fingerprint.to_owned())).collect(),
            granted_by: answer.by.clone(),
            granted_at: answer.at,
            approval: approval.id,
        }
    }

    /// Whether this approval gave it, or gave the same one before.
    pub(crate) fn is_given_by(&self, approval: &Approval<CompactJson>) -> bool {
        let Some(answer) = &approval.answer else { return false };
        let is_same_scope = match (&self.covers, answer.outcome) {
            (GrantScope::Thread { tool, thread_id }, ApprovalOutcome::ProceedAlways) => {
                approval.tool == *tool && approval.thread.as_ref() == Some(thread_id)
            }
            (GrantScope::Tool { tool }, ApprovalOutcome::ProceedAlwaysTool) => approval.tool == *tool,
            (GrantScope::Server { .. }, ApprovalOutcome::ProceedAlwaysServer) => {
                self.definitions.contains_key(&approval.tool)
            }
            _ => false,
        };
        is_same_scope && approval.rule == self.rule
    }

    /// Whether it applies to the tool as it is defined now.
    pub(crate) fn holds_for(&self, tool: ToolVersion<'_>) -> bool {
        self.definitions.get(&tool.definition.name).is_some_and(|fingerprint| fingerprint == tool.fingerprint)
    }
}

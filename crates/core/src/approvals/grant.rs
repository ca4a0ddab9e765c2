//! A standing yes: calls that would ask are allowed, because a person said "always".
//!
//! A grant answers the question of one rule about tools as they were when it was given: another rule still asks, a
//! changed tool asks again, and what is denied stays denied.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{Answer, Approval, ApprovalOutcome, ToolVersion};
use toolhub_storage::backend::{Partition, PartitionKind, RowKey, Table};
use toolhub_types::{
    digest,
    ids::{ApprovalId, Caller, Tenant, ThreadId},
    timestamp::Timestamp,
    tool::{Definition, ToolName},
};

/// A standing yes of a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Grant {
    /// The grant.
    pub id: SmolStr,
    /// What it covers.
    pub covers: GrantScope,
    /// The rule whose question it answers.
    pub rule: String,
    /// The tools it holds for, as they were when it was given. One that is not here, or is another now, asks again.
    pub definitions: BTreeMap<ToolName, String>,
    /// Who gave it.
    pub granted_by: Caller,
    /// When.
    pub granted_at: Timestamp,
    /// The question it was an answer to.
    pub approval: ApprovalId,
}

/// What a grant covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "scope")]
#[non_exhaustive]
#[schemars(rename = "GrantCovers")]
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
    /// What an answer covers for good; `None` for one that holds only once. Fails where there is nothing to cover.
    pub(crate) fn from_outcome(
        outcome: ApprovalOutcome,
        approval: &Approval,
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

    /// Every grant that would answer this rule for this tool.
    pub(crate) fn candidates(tool: &Definition, thread: Option<&ThreadId>) -> impl Iterator<Item = Self> {
        let name = &tool.name;
        let thread = thread.map(|thread| Self::Thread { tool: name.clone(), thread_id: thread.clone() });
        let server = tool.origin.as_ref().map(|origin| Self::Server { server: origin.source.clone() });
        [thread, Some(Self::Tool { tool: name.clone() }), server].into_iter().flatten()
    }

    /// Where such a grant lies.
    pub(crate) fn key(&self, tenant: &Tenant, rule: &str) -> RowKey {
        let (scope, place, what) = match self {
            Self::Thread { tool, thread_id } => ("thread", PartitionKind::Thread(thread_id.clone()), tool.as_str()),
            Self::Tool { tool } => ("tool", PartitionKind::Grants, tool.as_str()),
            Self::Server { server } => ("server", PartitionKind::Grants, server.as_str()),
        };
        let thread = if let Self::Thread { thread_id, .. } = self { thread_id.as_str() } else { "" };
        let hash = digest::sha256_hex([scope, thread, what, rule].map(str::as_bytes));
        let partition = Partition { tenant: tenant.clone(), kind: place };
        RowKey { partition, table: Table::Grants, id: smol_str::format_smolstr!("gr_{}", &hash[..32]) }
    }
}

impl Grant {
    /// The grant that an answer gives.
    pub(crate) fn new(
        key: &RowKey,
        covers: GrantScope,
        approval: &Approval,
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

    /// Whether it holds for the tool as it is now.
    pub(crate) fn holds_for(&self, tool: ToolVersion<'_>) -> bool {
        self.definitions.get(&tool.definition.name).is_some_and(|fingerprint| fingerprint == tool.fingerprint)
    }
}

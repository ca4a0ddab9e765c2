//! Serializes and restores a thread's tool statuses and evidence as JSON.
//!
//! In: a thread, or a text written here or by an older system. Out: JSON `{states, config, timestamp, evidence}`. The config is
//! informative only: restoring never changes the running config. A text that cannot be parsed changes nothing; its beginning
//! is quarantined as an artifact, and a warning reports it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{StatusScope, ToolHub, availability::ToolSnapshot};
use crate::{
    artifact::{self, ArtifactClass},
    evidence,
    registry::ToolFilter,
    statuses::StatusKey,
};
use toolhub_types::{
    content::Content,
    error::{CallError, ErrorKind},
    ids::{ArtifactId, Tenant, ThreadId},
    language::Language,
    status::{Evidence, Failure, StatusEvent, StatusRecord, StatusSettings, ToolStatus, apply},
    timestamp::Timestamp,
    tool::ToolName,
};

/// Maximum size of what is stored of a text that cannot be parsed: enough to see what it is.
const MAX_QUARANTINED_BYTES: usize = 64 * 1024;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SerializedSnapshot<'a> {
    states: Vec<SavedToolState>,
    config: &'a StatusSettings,
    timestamp: Timestamp,
    evidence: Evidence,
}

/// The part of a snapshot that is restored; the config is not.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ParsedSnapshot {
    states: Vec<SavedToolState>,
    #[serde(default)]
    evidence: Evidence,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "the state of a tool")]
struct SavedToolState {
    tool_name: ToolName,
    status: ToolStatus,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    last_updated: Option<Timestamp>,
    #[serde(default)]
    consecutive_failures: u32,
    #[serde(default)]
    last_success_time: Option<Timestamp>,
    #[serde(default)]
    last_failure_time: Option<Timestamp>,
    #[serde(default)]
    should_rebind: bool,
    /// The thread's complete record. Absent in texts of older systems, which are recognised by that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    facts: Option<StatusRecord>,
}

/// Result of restoring a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SnapshotRestore {
    /// The tools whose record was restored.
    pub tools: Vec<ToolName>,
    /// Tools of the snapshot that are not registered here.
    pub unknown: Vec<ToolName>,
    /// Why nothing was restored, if the text could not be parsed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// The artifact that holds the quarantined text, or its first 64 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<ArtifactId>,
}

impl ToolHub {
    /// Serializes a thread's statuses and evidence as JSON.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn serialize_tool_states(&self, tenant: &Tenant, thread: &ThreadId) -> Result<String, CallError> {
        let scope = StatusScope::Thread(tenant, thread);
        let evidence = self.load_evidence(scope, true).await?;
        let since = self.scope_start(scope).await?;
        let snapshots = self.snapshot_tools_with(self.list(&ToolFilter::default()), scope, &evidence, since);
        let states = snapshots.iter().map(SavedToolState::from_snapshot).collect();
        let config = &*self.engine.statuses.settings();
        let serialized = SerializedSnapshot { states, config, timestamp: self.now(), evidence };
        serde_json::to_string(&serialized)
            .map_err(|error| CallError::new(ErrorKind::Internal).operator(error.to_string()))
    }

    /// Restores a thread's own records and evidence from a snapshot. Evidence is merged, never removed; the running config and
    /// shared records are not touched.
    ///
    /// # Errors
    /// When the store does not answer. A text that cannot be parsed is no error: see [`SnapshotRestore::warning`].
    pub async fn deserialize_tool_states(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        text: &str,
    ) -> Result<SnapshotRestore, CallError> {
        let parsed: ParsedSnapshot = match serde_json::from_str(text) {
            Ok(parsed) => parsed,
            Err(error) => return Ok(self.quarantine(tenant, text, &error).await),
        };
        self.ensure_thread(StatusScope::Thread(tenant, thread)).await?;
        let evidence = parsed.all_evidence();
        let mut restored = SnapshotRestore::default();
        for state in parsed.states {
            let Some(tool) = self.get(&state.tool_name) else {
                restored.unknown.push(state.tool_name);
                continue;
            };
            let name = state.tool_name.clone();
            let key = StatusKey::thread(&name, tenant, thread);
            let has_dependencies = !tool.definition.depends_on.is_empty();
            if let Some(facts) = state.into_facts(has_dependencies, &self.engine.statuses.settings(), self.now()) {
                self.engine.statuses.apply(&key, &StatusEvent::Restored(Box::new(facts))).await?;
                restored.tools.push(name);
            }
        }
        evidence::update(&self.engine, tenant, thread, |stored, _| stored.merge(&evidence)).await?;
        Ok(restored)
    }

    async fn quarantine(&self, tenant: &Tenant, text: &str, error: &serde_json::Error) -> SnapshotRestore {
        let services = &self.engine.services;
        let bytes = text.as_bytes()[..text.floor_char_boundary(MAX_QUARANTINED_BYTES)].to_vec();
        let owner = (tenant, ArtifactClass::Plain);
        let saved = artifact::save(&*services.store, owner, "text/plain", bytes, services.clock.now()).await;
        let kept = saved.and_then(|content| if let Content::Artifact { id, .. } = content { Some(id) } else { None });
        let warning = Some(format!("the snapshot cannot be parsed, nothing was restored: {error}"));
        SnapshotRestore { warning, kept, ..SnapshotRestore::default() }
    }
}

impl ParsedSnapshot {
    /// The evidence of the text. Texts of older systems have none; there a tool that has succeeded is evidence.
    fn all_evidence(&self) -> Evidence {
        let older = self.states.iter().filter(|state| state.facts.is_none());
        let mut successes: Vec<_> =
            older.filter_map(|state| Some((state.last_success_time?, &state.tool_name))).collect();
        successes.sort();
        let mut found = Evidence::default();
        for (at, tool) in successes {
            found.add(tool, at, []);
        }
        let mut evidence = self.evidence.clone();
        evidence.merge(&found);
        evidence
    }
}

impl SavedToolState {
    fn from_snapshot(snapshot: &ToolSnapshot) -> Self {
        let info = snapshot.info(Language::English);
        Self {
            tool_name: info.tool_name,
            status: info.status,
            reason: Some(info.reason),
            last_updated: Some(info.last_updated),
            consecutive_failures: info.consecutive_failures,
            last_success_time: info.last_success_time,
            last_failure_time: info.last_failure_time,
            should_rebind: info.should_rebind,
            facts: Some((*snapshot.own_facts).clone()),
        }
    }

    /// The record to restore. A text of an older system has only the status word, which is applied as an operator override. For
    /// a tool with dependencies `unavailable` meant that these were not met: that follows from the evidence and needs no record.
    fn into_facts(self, has_dependencies: bool, settings: &StatusSettings, now: Timestamp) -> Option<StatusRecord> {
        // A tool that never ran has no record, and restoring must not create one.
        let unless_empty = |facts: StatusRecord| (facts != StatusRecord::default()).then_some(facts);
        if let Some(facts) = self.facts {
            return unless_empty(facts);
        }
        let text = self.reason.clone().unwrap_or_default();
        let facts = StatusRecord {
            consecutive_failures: self.consecutive_failures,
            last_success: self.last_success_time,
            last_failure: self.last_failure_time.map(|at| Failure { at, kind: ErrorKind::ToolError, text }),
            ..StatusRecord::default()
        };
        match self.status {
            ToolStatus::Available => unless_empty(facts),
            ToolStatus::Unavailable if has_dependencies => unless_empty(facts),
            status => {
                let at = self.last_updated.unwrap_or(now);
                Some(apply(&facts, &StatusEvent::from_operator(status, self.reason, None), settings, at, 0.0))
            }
        }
    }
}

//! Serializes and restores a thread's tool statuses and evidence as JSON.
//!
//! In: a thread, or a text written here or by an older system. Out: JSON `{states, config, timestamp, evidence}`. The config is
//! informative only: restoring never changes the running config. A text that cannot be parsed changes nothing, is quarantined
//! as an artifact, and is reported in a warning.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{StatusScope, ToolHub, availability::ToolSnapshot};
use crate::{artifact, registry::ToolFilter, statuses::StatusKey};
use toolhub_storage::backend::{Batch, Partition, StoreError};
use toolhub_types::{
    content::Content,
    error::CallError,
    ids::{ArtifactId, Tenant, ThreadId},
    status::{Evidence, StatusEvent, StatusRecord, StatusSettings, ToolStatus, apply},
    timestamp::Timestamp,
    tool::ToolName,
};

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
    /// The artifact that holds the quarantined text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<ArtifactId>,
}

impl ToolHub {
    /// Serializes a thread's statuses and evidence as JSON.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn serialize_tool_states(&self, tenant: &Tenant, thread: &ThreadId) -> Result<String, CallError> {
        let now = self.now();
        let (evidence, _) = self.engine.journal.evidence(tenant, thread, now).await?;
        let snapshots = self.snapshot_tools_with(
            self.list(&ToolFilter::default()),
            StatusScope::Thread(tenant, thread),
            &evidence,
            now,
        );
        let states = snapshots.iter().map(SavedToolState::from_snapshot);
        let config = &*self.engine.statuses.settings();
        let serialized = SerializedSnapshot { states: states.collect(), config, timestamp: now, evidence };
        serde_json::to_string(&serialized)
            .map_err(|error| CallError::new(toolhub_types::error::ErrorKind::Internal).operator(error.to_string()))
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
        let mut restored = SnapshotRestore::default();
        for state in parsed.states {
            let Some(tool) = self.get(&state.tool_name) else {
                restored.unknown.push(state.tool_name);
                continue;
            };
            let name = state.tool_name.clone();
            let key = StatusKey::thread(&name, tenant, thread);
            if let Some(at) = state.last_success() {
                self.engine.statuses.successes.note(key.clone(), at);
            }
            let has_dependencies = !tool.definition.depends_on.is_empty();
            if let Some(facts) = state.into_facts(has_dependencies, &self.engine.statuses.settings(), self.now()) {
                self.engine.statuses.apply(&key, &StatusEvent::Restored(Box::new(facts))).await?;
                restored.tools.push(name);
            }
        }
        self.restore_evidence(tenant, thread, &parsed.evidence).await?;
        Ok(restored)
    }

    async fn quarantine(&self, tenant: &Tenant, text: &str, error: &serde_json::Error) -> SnapshotRestore {
        let services = &self.engine.services;
        let bytes = text.as_bytes().to_vec();
        let saved = artifact::save(&*services.store, tenant, "text/plain", bytes, services.clock.now()).await;
        let kept = saved.and_then(|content| if let Content::Artifact { id, .. } = content { Some(id) } else { None });
        let warning = Some(format!("the snapshot cannot be parsed, nothing was restored: {error}"));
        SnapshotRestore { warning, kept, ..SnapshotRestore::default() }
    }

    async fn restore_evidence(&self, tenant: &Tenant, thread: &ThreadId, saved: &Evidence) -> Result<(), StoreError> {
        let journal = &self.engine.journal;
        loop {
            let now = self.now();
            let (mut evidence, version) = journal.evidence(tenant, thread, now).await?;
            let before = evidence.clone();
            evidence.merge(saved);
            if evidence == before {
                return Ok(());
            }
            let batch = Batch::new(Partition::for_thread(tenant.clone(), thread.clone()));
            match journal.store.commit(batch.with(journal.put_evidence(&evidence, version)?), now).await {
                // A call stored evidence concurrently: merge again, so that both count.
                Err(StoreError::Conflict { .. }) => {}
                result => {
                    self.engine.services.availability_changed.notify_one();
                    return result.map(|_| ());
                }
            }
        }
    }
}

impl SavedToolState {
    fn from_snapshot(snapshot: &ToolSnapshot) -> Self {
        let info = snapshot.info();
        Self {
            tool_name: info.tool_name,
            status: info.status,
            reason: Some(info.reason),
            last_updated: info.last_updated,
            consecutive_failures: info.consecutive_failures,
            last_success_time: info.last_success_time,
            last_failure_time: info.last_failure_time,
            should_rebind: info.should_rebind,
            facts: Some((*snapshot.own_facts).clone()),
        }
    }

    /// When the tool last succeeded in the thread.
    fn last_success(&self) -> Option<Timestamp> {
        self.facts.as_ref().map_or(self.last_success_time, |facts| facts.last_success)
    }

    /// The record to restore. A text of an older system has only the status word, which is applied as an operator override. For
    /// a tool with dependencies `unavailable` meant that these were not met: that follows from the evidence and needs no record.
    fn into_facts(self, has_dependencies: bool, settings: &StatusSettings, now: Timestamp) -> Option<StatusRecord> {
        if let Some(facts) = self.facts {
            // A tool that never failed has no record, and saving a snapshot must not create one. Its last success is kept
            // apart from the record.
            let never_failed = StatusRecord { last_success: facts.last_success, ..StatusRecord::default() };
            return (facts != never_failed).then_some(facts);
        }
        let facts = StatusRecord {
            consecutive_failures: self.consecutive_failures,
            last_success: self.last_success_time,
            updated: self.last_updated,
            ..StatusRecord::default()
        };
        match self.status {
            ToolStatus::Available => (self.consecutive_failures > 0).then_some(facts),
            ToolStatus::Unavailable if has_dependencies => None,
            status => {
                let at = self.last_updated.unwrap_or(now);
                Some(apply(&facts, &StatusEvent::from_operator(status, self.reason, None), settings, at, 0.0))
            }
        }
    }
}

//! A thread's statuses and evidence as one text, and back.
//!
//! In: a thread, or a text that was written here or by an older system. Out: JSON `{states, config, timestamp, evidence}`.
//! The config is written for readers; restoring never changes the one that runs. A text that cannot be read changes
//! nothing, is kept aside, and says so.

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

/// What is read back. The config is not among it.
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
    /// The thread's own record, whole; absent in texts of older systems, which is how those are known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    facts: Option<StatusRecord>,
}

/// What restoring a text has done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Restored {
    /// The tools whose record was restored.
    pub tools: Vec<ToolName>,
    /// Tools of the text that nobody knows here.
    pub unknown: Vec<ToolName>,
    /// Why nothing was restored, if the text could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Where the unreadable text is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<ArtifactId>,
}

impl ToolHub {
    /// A thread's statuses and evidence as one JSON text.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn serialize_tool_states(&self, tenant: &Tenant, thread: &ThreadId) -> Result<String, CallError> {
        let now = self.now();
        let (evidence, _) = self.engine.journal.evidence(tenant, thread, now).await?;
        let seen = self.snapshot_tools_with(
            self.list(&ToolFilter::default()),
            StatusScope::Thread(tenant, thread),
            &evidence,
            now,
        );
        let states = seen.iter().map(SavedToolState::from_snapshot);
        let config = &*self.engine.statuses.settings();
        let written = SerializedSnapshot { states: states.collect(), config, timestamp: now, evidence };
        serde_json::to_string(&written)
            .map_err(|error| CallError::new(toolhub_types::error::ErrorKind::Internal).operator(error.to_string()))
    }

    /// Restores a thread's own records and evidence from a text. Evidence is added, never taken away; the running config
    /// stays; shared records are not touched.
    ///
    /// # Errors
    /// When the store does not answer. A text that cannot be read is no error: see [`Restored::warning`].
    pub async fn deserialize_tool_states(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        text: &str,
    ) -> Result<Restored, CallError> {
        let read: ParsedSnapshot = match serde_json::from_str(text) {
            Ok(read) => read,
            Err(error) => return Ok(self.quarantine(tenant, text, &error).await),
        };
        let mut restored = Restored::default();
        for state in read.states {
            let Some(tool) = self.get(&state.tool_name) else {
                restored.unknown.push(state.tool_name);
                continue;
            };
            let name = state.tool_name.clone();
            let whose = StatusKey::thread(&name, tenant, thread);
            if let Some(at) = state.last_success() {
                self.engine.statuses.successes.note(whose.clone(), at);
            }
            let waits = !tool.definition.depends_on.is_empty();
            if let Some(facts) = state.into_facts(waits, &self.engine.statuses.settings(), self.now()) {
                self.engine.statuses.apply(&whose, &StatusEvent::Restored(Box::new(facts))).await?;
                restored.tools.push(name);
            }
        }
        self.restore_evidence(tenant, thread, &read.evidence).await?;
        Ok(restored)
    }

    async fn quarantine(&self, tenant: &Tenant, text: &str, error: &serde_json::Error) -> Restored {
        let services = &self.engine.services;
        let bytes = text.as_bytes().to_vec();
        let kept = artifact::save(&*services.store, tenant, "text/plain", bytes, services.clock.now()).await;
        let kept = kept.and_then(|piece| if let Content::Artifact { id, .. } = piece { Some(id) } else { None });
        let warning = Some(format!("the text could not be read, and nothing was restored: {error}"));
        Restored { warning, kept, ..Restored::default() }
    }

    async fn restore_evidence(&self, tenant: &Tenant, thread: &ThreadId, saved: &Evidence) -> Result<(), StoreError> {
        let journal = &self.engine.journal;
        loop {
            let now = self.now();
            let (mut evidence, seen) = journal.evidence(tenant, thread, now).await?;
            let before = evidence.clone();
            evidence.merge(saved);
            if evidence == before {
                return Ok(());
            }
            let batch = Batch::new(Partition::for_thread(tenant.clone(), thread.clone()));
            match journal.store.commit(batch.with(journal.put_evidence(&evidence, seen)?), now).await {
                // Another call left evidence at the same moment; both count.
                Err(StoreError::Conflict { .. }) => {}
                end => {
                    self.engine.services.availability_changed.notify_one();
                    return end.map(|_| ());
                }
            }
        }
    }
}

impl SavedToolState {
    fn from_snapshot(seen: &ToolSnapshot) -> Self {
        let info = seen.info();
        Self {
            tool_name: info.tool_name,
            status: info.status,
            reason: Some(info.reason),
            last_updated: info.last_updated,
            consecutive_failures: info.consecutive_failures,
            last_success_time: info.last_success_time,
            last_failure_time: info.last_failure_time,
            should_rebind: info.should_rebind,
            facts: Some((*seen.own_facts).clone()),
        }
    }

    /// When the tool last succeeded in the thread.
    fn last_success(&self) -> Option<Timestamp> {
        self.facts.as_ref().map_or(self.last_success_time, |facts| facts.last_success)
    }

    /// The record to restore. A text of an older system has only the words; what they meant is said again, by hand. Of a
    /// tool that `waits` for others, `unavailable` meant just that: it is read from the evidence, and no record.
    fn into_facts(self, waits: bool, settings: &StatusSettings, now: Timestamp) -> Option<StatusRecord> {
        if let Some(facts) = self.facts {
            // A tool that never made trouble has no record, and gets none by being saved. Its success is remembered apart.
            let untroubled = StatusRecord { last_success: facts.last_success, ..StatusRecord::default() };
            return (facts != untroubled).then_some(facts);
        }
        let facts = StatusRecord {
            consecutive_failures: self.consecutive_failures,
            last_success: self.last_success_time,
            updated: self.last_updated,
            ..StatusRecord::default()
        };
        match self.status {
            ToolStatus::Available => (self.consecutive_failures > 0).then_some(facts),
            ToolStatus::Unavailable if waits => None,
            status => {
                let said = self.last_updated.unwrap_or(now);
                Some(apply(&facts, &StatusEvent::from_operator(status, self.reason, None), settings, said, 0.0))
            }
        }
    }
}

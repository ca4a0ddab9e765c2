//! `CallEnvelope`: what a call carries through the pipeline: the call, its tool, and the results of earlier stages.

use std::sync::Arc;

use super::{EvidenceDemand, Tool};
use crate::{
    approvals::StoredApproval,
    artifact::ArtifactClass,
    call::Call,
    journal::{CallTracker, OpenCall},
    result_cache::Fingerprint,
    step::StepCall,
};
use toolhub_storage::backend::RowVersion;
use toolhub_types::{ids::ApprovalId, outcome::Status};

/// The call and its tool, moved through all stages. The call is boxed, because each stage moves the envelope by copying it.
#[derive(Clone)]
pub(crate) struct CallEnvelope {
    pub(crate) call: Box<Call>,
    pub(crate) tool: Arc<Tool>,
    /// What the tool's dependents need to know of its successes.
    pub(crate) evidence_demand: EvidenceDemand,
    /// The live status that other tasks can read, if the call runs on a task of its own.
    pub(crate) tracker: Option<Arc<CallTracker>>,
    /// Rarely used data. Boxed, because each stage moves the envelope by copying it.
    pub(crate) extras: Option<Box<Extras>>,
}

/// Data that only few calls have.
#[derive(Default, Clone)]
pub(crate) struct Extras {
    /// A claim on the call's idempotency key by a call that is no longer in the journal; it may be taken over.
    pub(crate) stale_claim: Option<RowVersion>,
    /// The digest of the arguments as the caller sent them, for a call with an idempotency key.
    pub(crate) digest: Option<String>,
    /// The approval of exactly this call.
    pub(crate) approval: Option<StoredApproval>,
    /// Its position in a batch.
    pub(crate) step_call: Option<StepCall>,
    /// Notes for the model, added to the result.
    pub(crate) notes: Vec<String>,
    /// The key under which the result is cached.
    pub(crate) cache_key: Option<Fingerprint>,
    /// The opening record, if it was written before the call was queued or by a process that died.
    pub(crate) open_record: Option<Arc<OpenCall>>,
}

impl CallEnvelope {
    pub(crate) fn new(
        call: Box<Call>,
        (tool, evidence_demand): (Arc<Tool>, EvidenceDemand),
        step_call: Option<StepCall>,
    ) -> Self {
        let extras = step_call.map(|step_call| Box::new(Extras { step_call: Some(step_call), ..Extras::default() }));
        Self { call, tool, evidence_demand, tracker: None, extras }
    }

    /// How long the artifacts of the call stay in a store near its size limit.
    pub(crate) fn artifact_class(&self) -> ArtifactClass {
        if self.call.idempotency_key.is_some() { ArtifactClass::OfKeyedCall } else { ArtifactClass::Plain }
    }

    /// Publishes the status of the call.
    pub(crate) fn set_status(&self, status: Status) {
        if let Some(tracker) = &self.tracker {
            tracker.set_status(status);
        }
    }

    /// Publishes that the call waits, in the queue or for this approval.
    pub(crate) fn set_waiting(&self, status: Status, approval: Option<ApprovalId>) {
        if let Some(tracker) = &self.tracker {
            tracker.set_waiting(status, approval, &self.call.arguments);
        }
    }

    /// Its position in a batch.
    pub(crate) fn step_call(&self) -> Option<&StepCall> {
        self.extras.as_ref()?.step_call.as_ref()
    }

    /// The extras, created on first use.
    pub(crate) fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// The approval of exactly this call.
    pub(crate) fn approval(&self) -> Option<&StoredApproval> {
        self.extras.as_ref()?.approval.as_ref()
    }

    /// The opening record, if it was written before the call was queued or by a process that died.
    pub(crate) fn open_record(&self) -> Option<&OpenCall> {
        self.extras.as_ref()?.open_record.as_deref()
    }

    /// Whether it passed the stages up to 8 before: its process died.
    pub(crate) fn is_resumed(&self) -> bool {
        self.open_record().is_some()
    }

    /// The approval it waits for, or waited for when its process died.
    pub(crate) fn pending_approval(&self) -> Option<ApprovalId> {
        self.open_record().filter(|open| open.is_waiting()).and_then(|open| open.record.approval)
    }

    /// Notes for the model, added to the result.
    pub(crate) fn notes(&self) -> &[String] {
        self.extras.as_ref().map_or(&[], |extras| &extras.notes)
    }
}

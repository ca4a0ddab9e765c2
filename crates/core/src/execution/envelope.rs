//! What a call carries from stage to stage: the call, its tool, and what earlier stages found out.

use std::sync::Arc;

use super::{EvidenceDemand, Tool};
use crate::{
    approvals::StoredApproval,
    call::Call,
    journal::{CallTracker, OpenCall},
    result_cache::Fingerprint,
    step::StepCall,
};
use toolhub_storage::backend::RowVersion;
use toolhub_types::{ids::ApprovalId, outcome::Status};

/// What travels through all doors: the call and the tool it asked for. The call is in a box, because a value that is
/// moved from door to door is copied at each.
#[derive(Clone)]
pub(crate) struct CallEnvelope {
    pub(crate) call: Box<Call>,
    pub(crate) tool: Arc<Tool>,
    /// Whether others wait for this tool.
    pub(crate) evidence_demand: EvidenceDemand,
    /// Where others see how far it is, if it runs on a task of its own.
    pub(crate) tracker: Option<Arc<CallTracker>>,
    /// What few calls carry along. Apart, because a value that is moved from door to door is copied at each.
    pub(crate) extras: Option<Box<Extras>>,
}

/// What few calls carry along.
#[derive(Default, Clone)]
pub(crate) struct Extras {
    /// A claim on the call's idempotency key whose call the journal no longer knows; it may be taken over.
    pub(crate) stale_claim: Option<RowVersion>,
    /// The fingerprint of the arguments as the caller wrote them, for a call with a key.
    pub(crate) digest: Option<String>,
    /// A person's yes to exactly this call.
    pub(crate) approval: Option<StoredApproval>,
    /// Its place among the calls of one step.
    pub(crate) step_call: Option<StepCall>,
    /// What the model is told beside the result.
    pub(crate) notes: Vec<String>,
    /// What the answer is kept as.
    pub(crate) cache_key: Option<Fingerprint>,
    /// The record that was written before the call came to its turn, or by a process that died.
    pub(crate) open_record: Option<Box<OpenCall>>,
}

impl CallEnvelope {
    /// A call and its tool.
    pub(crate) fn new(call: Box<Call>, (tool, base): (Arc<Tool>, EvidenceDemand), member: Option<StepCall>) -> Self {
        let extras = member.map(|member| Box::new(Extras { step_call: Some(member), ..Extras::default() }));
        Self { call, tool, evidence_demand: base, tracker: None, extras }
    }

    /// The call has come so far.
    pub(crate) fn set_status(&self, status: Status) {
        if let Some(tracker) = &self.tracker {
            tracker.set_status(status);
        }
    }

    /// The call waits, for its turn or for a person.
    pub(crate) fn set_waiting(&self, status: Status, asked: Option<ApprovalId>) {
        if let Some(tracker) = &self.tracker {
            tracker.set_waiting(status, asked, &self.call.arguments);
        }
    }

    /// Its place among the calls of one step.
    pub(crate) fn step_call(&self) -> Option<&StepCall> {
        self.extras.as_ref()?.step_call.as_ref()
    }

    /// What it carries along, to be added to.
    pub(crate) fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// A person's yes to exactly this call.
    pub(crate) fn approval(&self) -> Option<&StoredApproval> {
        self.extras.as_ref()?.approval.as_ref()
    }

    /// The record of the call, if it was written before it came to its turn, or by a process that died.
    pub(crate) fn open_record(&self) -> Option<&OpenCall> {
        self.extras.as_ref()?.open_record.as_deref()
    }

    /// Whether it has passed the doors up to 8 before: it is run again, or goes on, because its process died.
    pub(crate) fn is_rerun(&self) -> bool {
        self.open_record().is_some()
    }

    /// The question it waits for, or did when its process died.
    pub(crate) fn pending_approval(&self) -> Option<ApprovalId> {
        self.open_record().filter(|left| left.is_waiting()).and_then(|left| left.record.approval)
    }

    /// What the model is told beside the result.
    pub(crate) fn notes(&self) -> &[String] {
        self.extras.as_ref().map_or(&[], |extras| &extras.notes)
    }
}

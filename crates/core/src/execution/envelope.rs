//! What a call carries from stage to stage: the call, its tool, and what earlier stages found out.

use std::sync::Arc;

use super::{Base, Tool};
use crate::{
    approvals::Permit,
    call::Call,
    journal::{CallTracker, OpenCall},
    result_cache::Fingerprint,
    step::Member,
};
use toolhub_storage::backend::Seen;
use toolhub_types::{ids::ApprovalId, outcome::Status};

/// What travels through all doors: the call and the tool it asked for. The call is in a box, because a value that is
/// moved from door to door is copied at each.
#[derive(Clone)]
pub(crate) struct CallEnvelope {
    pub(crate) call: Box<Call>,
    pub(crate) tool: Arc<Tool>,
    /// Whether others wait for this tool.
    pub(crate) base: Base,
    /// Where others see how far it is, if it runs on a task of its own.
    pub(crate) tracker: Option<Arc<CallTracker>>,
    /// What few calls carry along. Apart, because a value that is moved from door to door is copied at each.
    pub(crate) extras: Option<Box<Extras>>,
}

/// What few calls carry along.
#[derive(Default, Clone)]
pub(crate) struct Extras {
    /// A claim on the call's idempotency key whose call the journal no longer knows; it may be taken over.
    pub(crate) stale_claim: Option<Seen>,
    /// The fingerprint of the arguments as the caller wrote them, for a call with a key.
    pub(crate) digest: Option<String>,
    /// A person's yes to exactly this call.
    pub(crate) permit: Option<Permit>,
    /// Its place among the calls of one step.
    pub(crate) member: Option<Member>,
    /// What the model is told beside the result.
    pub(crate) notes: Vec<String>,
    /// What the answer is kept as.
    pub(crate) keep_as: Option<Fingerprint>,
    /// The record that was written before the call came to its turn, or by a process that died.
    pub(crate) left_open: Option<Box<OpenCall>>,
}

impl CallEnvelope {
    /// A call and its tool.
    pub(crate) fn new(call: Box<Call>, (tool, base): (Arc<Tool>, Base), member: Option<Member>) -> Self {
        let extras = member.map(|member| Box::new(Extras { member: Some(member), ..Extras::default() }));
        Self { call, tool, base, tracker: None, extras }
    }

    /// The call has come so far.
    pub(crate) fn at(&self, status: Status) {
        if let Some(tracker) = &self.tracker {
            tracker.at(status);
        }
    }

    /// The call waits, for its turn or for a person.
    pub(crate) fn waits(&self, status: Status, asked: Option<ApprovalId>) {
        if let Some(tracker) = &self.tracker {
            tracker.waits(status, asked, &self.call.arguments);
        }
    }

    /// Its place among the calls of one step.
    pub(crate) fn member(&self) -> Option<&Member> {
        self.extras.as_ref()?.member.as_ref()
    }

    /// What it carries along, to be added to.
    pub(crate) fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// A person's yes to exactly this call.
    pub(crate) fn permit(&self) -> Option<&Permit> {
        self.extras.as_ref()?.permit.as_ref()
    }

    /// The record of the call, if it was written before it came to its turn, or by a process that died.
    pub(crate) fn left_open(&self) -> Option<&OpenCall> {
        self.extras.as_ref()?.left_open.as_deref()
    }

    /// Whether it has passed the doors up to 8 before: it is run again, or goes on, because its process died.
    pub(crate) fn runs_again(&self) -> bool {
        self.left_open().is_some()
    }

    /// The question it waits for, or did when its process died.
    pub(crate) fn asked(&self) -> Option<ApprovalId> {
        self.left_open().filter(|left| left.waits()).and_then(|left| left.record.approval)
    }

    /// What the model is told beside the result.
    pub(crate) fn notes(&self) -> &[String] {
        self.extras.as_ref().map_or(&[], |extras| &extras.notes)
    }
}

//! `Call`: a requested call with its arguments and options.

use std::{ops::Deref, sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{ApprovalReuse, CallHead, CallerWait, InputHandler, UpdateSink};
use crate::argument_memory::ArgumentMemoryPermit;
use toolhub_types::{ids::IdError, json::CompactJson};

/// A requested call. Nothing but the format of its ids has been checked.
#[derive(Clone)]
pub(crate) struct Call {
    /// Its identity; `Call` dereferences to it.
    pub(crate) head: Arc<CallHead>,
    /// The arguments for the tool. Large ones are text, because a call may wait for a long time.
    pub(crate) arguments: CompactJson,
    /// Reserves the memory of large arguments while the call exists.
    pub(crate) argument_memory: Option<Arc<ArgumentMemoryPermit>>,
    /// Shortens the tool's timeout.
    pub(crate) timeout: Option<Duration>,
    /// Overrides the tool's number of retries.
    pub(crate) retries: Option<u32>,
    /// The call is executed outside the hub, with this deadline.
    pub(crate) external: Option<Duration>,
    /// Whether its tool was resolved in an offer, not in the current registry.
    pub(crate) from_offer: bool,
    /// An invalid id in the request.
    pub(crate) id_error: Option<Box<IdError>>,
    /// How its caller waits for it.
    pub(crate) wait: CallerWait,
    /// Until when its caller waits for an approval; without it, until the approval expires.
    pub(crate) approval_until: Option<Instant>,
    /// It is refused if it needs an approval that no grant gives.
    pub(crate) refuses_approval: bool,
    /// Which approvals of identical calls it may use.
    pub(crate) approval_reuse: ApprovalReuse,
    /// Cancels the call.
    pub(crate) cancel: Option<CancellationToken>,
    /// Where progress and log lines of its tool go.
    pub(crate) updates: Option<UpdateSink>,
    /// Answers input requests of its tool.
    pub(crate) input: Option<Arc<dyn InputHandler>>,
}

impl Deref for Call {
    type Target = CallHead;

    fn deref(&self) -> &CallHead {
        &self.head
    }
}

impl Call {
    /// A call for whose outcome the caller waits.
    pub(crate) fn new(head: CallHead, arguments: CompactJson) -> Self {
        Self {
            head: Arc::new(head),
            arguments,
            argument_memory: None,
            timeout: None,
            retries: None,
            external: None,
            from_offer: false,
            id_error: None,
            wait: CallerWait::default(),
            approval_until: None,
            refuses_approval: false,
            approval_reuse: ApprovalReuse::default(),
            cancel: None,
            updates: None,
            input: None,
        }
    }

    /// Its identity, to be completed before the head is shared.
    pub(crate) fn head_mut(&mut self) -> &mut CallHead {
        Arc::make_mut(&mut self.head)
    }

    /// Whether the call continues when its caller is gone. A caller with an idempotency key may repeat the call.
    pub(crate) fn outlives_caller(&self) -> bool {
        self.wait.is_detached() || self.idempotency_key.is_some()
    }

    /// Whether its caller waits for an approval at this time.
    pub(crate) fn waits_for_approval(&self, now: Instant) -> bool {
        self.wait.waits_for_approval() && self.approval_until.is_none_or(|until| now < until)
    }

    /// Whether the call was cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancellationToken::is_cancelled)
    }
}

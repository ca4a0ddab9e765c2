//! What a caller asks for: a tool, arguments, and on whose behalf.

use std::{ops::Deref, sync::Arc, time::Duration};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{CallHead, CallerWait, ProgressSink};
use toolhub_types::ids::IdError;

/// A call on its way in. Nothing about it has been checked yet but the form of its ids.
#[derive(Clone)]
pub(crate) struct Call {
    /// Who it is; reads as the call's own fields.
    pub(crate) head: Arc<CallHead>,
    /// What to give the tool.
    pub(crate) arguments: Value,
    /// A shorter time than the tool's own.
    pub(crate) timeout: Option<Duration>,
    /// How often it is tried again, whatever its tool says.
    pub(crate) retries: Option<u32>,
    /// Somebody outside does the work instead of the tool's executor, and has this long for it.
    pub(crate) external: Option<Duration>,
    /// Whether its tool was looked up in a list the caller was offered, and not in the hub's present one.
    pub(crate) from_offer: bool,
    /// What is wrong with the request itself.
    pub(crate) id_error: Option<Box<IdError>>,
    /// How its caller waits for it.
    pub(crate) wait: CallerWait,
    /// Cancels the call.
    pub(crate) cancel: Option<CancellationToken>,
    /// Where its progress is wanted.
    pub(crate) progress: Option<ProgressSink>,
}

impl Deref for Call {
    type Target = CallHead;

    fn deref(&self) -> &CallHead {
        &self.head
    }
}

impl Call {
    /// A call for which a caller waits.
    pub(crate) fn new(head: CallHead, arguments: Value) -> Self {
        let (timeout, retries, external, flaw, cancel, progress) = (None, None, None, None, None, None);
        let (head, wait) = (Arc::new(head), CallerWait::default());
        Self { head, arguments, timeout, retries, external, from_offer: false, id_error: flaw, wait, cancel, progress }
    }

    /// Who it is, to be completed before anybody else knows the call.
    pub(crate) fn head_mut(&mut self) -> &mut CallHead {
        Arc::make_mut(&mut self.head)
    }

    /// Whether the call goes on when nobody waits for it any more. A caller with a key means to ask again.
    pub(crate) fn outlives_caller(&self) -> bool {
        self.wait.is_detached() || self.idempotency_key.is_some()
    }

    /// Whether the caller has given up on it.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancellationToken::is_cancelled)
    }
}

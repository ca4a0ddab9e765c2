//! `CallHead`: the identity of a call, constant from its arrival to its record.
//!
//! Created once and shared by the request, the ticket that guarantees its outcome, the tracker of its live status, and the record.

use smol_str::SmolStr;

use toolhub_storage::clock::Instant;
use toolhub_types::{
    ids::{CallId, Caller, IdempotencyKey, RunId, Tenant, ThreadId},
    timestamp::Timestamp,
    trace::{TraceContext, TraceId},
};

/// The identity of a call.
#[derive(Clone)]
pub(crate) struct CallHead {
    /// The call's id.
    pub(crate) id: CallId,
    /// Whether the caller minted the id, and may have used it for an earlier call.
    pub(crate) caller_minted_id: bool,
    /// The tool's name as the caller wrote it.
    pub(crate) tool: SmolStr,
    /// The tenant.
    pub(crate) tenant: Tenant,
    /// The caller.
    pub(crate) caller: Caller,
    /// The thread it belongs to.
    pub(crate) thread: Option<ThreadId>,
    /// Whether the hub minted the thread, because the caller named none.
    pub(crate) minted_thread: bool,
    /// The agent run it belongs to.
    pub(crate) run: Option<RunId>,
    /// The idempotency key.
    pub(crate) idempotency_key: Option<IdempotencyKey>,
    /// The model's own id of the call; unique only within one batch.
    pub(crate) model_call: Option<SmolStr>,
    /// The trace context of the caller.
    pub(crate) trace: Option<Box<TraceContext>>,
    /// When it arrived, by the wall clock.
    pub(crate) arrived_at: Timestamp,
    /// When it arrived, by the monotonic clock.
    pub(crate) arrived_instant: Instant,
}

impl CallHead {
    /// A call of the default tenant and caller, without optional fields.
    pub(crate) fn new(id: CallId, tool: SmolStr, arrived_at: Timestamp, arrived_instant: Instant) -> Self {
        Self {
            id,
            caller_minted_id: false,
            tool,
            tenant: Tenant::default(),
            caller: Caller::default(),
            thread: None,
            minted_thread: false,
            run: None,
            idempotency_key: None,
            model_call: None,
            trace: None,
            arrived_at,
            arrived_instant,
        }
    }

    /// The thread that the caller named.
    pub(crate) fn named_thread(&self) -> Option<&ThreadId> {
        self.thread.as_ref().filter(|_| !self.minted_thread)
    }

    /// Gives a call that names no thread a minted one.
    pub(crate) fn mint_thread(&mut self, thread: ThreadId) {
        (self.thread, self.minted_thread) = (Some(thread), true);
    }

    /// The id of its trace.
    pub(crate) fn trace_id(&self) -> Option<TraceId> {
        self.trace.as_ref().map(|trace| trace.trace_id)
    }
}

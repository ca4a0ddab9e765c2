//! Who a call is: the facts that stay the same from its arrival to its record.
//!
//! Made once and shared by the request, the ticket that promises its outcome, the tracker that others look at, and the record.

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
    /// This call, for ever.
    pub(crate) id: CallId,
    /// Whether its caller minted the id, and may have made a call with it before.
    pub(crate) caller_minted_id: bool,
    /// The tool's name as the caller wrote it.
    pub(crate) tool: SmolStr,
    /// Whose call it is.
    pub(crate) tenant: Tenant,
    /// Who asks.
    pub(crate) caller: Caller,
    /// The conversation it belongs to.
    pub(crate) thread: Option<ThreadId>,
    /// The agent run it belongs to.
    pub(crate) run: Option<RunId>,
    /// The caller's word that a repetition is the same call.
    pub(crate) idempotency_key: Option<IdempotencyKey>,
    /// The id the model gave its request; unique only inside one batch.
    pub(crate) model_call: Option<SmolStr>,
    /// Where it stands in a trace that began elsewhere.
    pub(crate) trace: Option<Box<TraceContext>>,
    /// When it arrived, by the wall.
    pub(crate) arrived_at: Timestamp,
    /// When it arrived, for measuring.
    pub(crate) arrived_instant: Instant,
}

impl CallHead {
    /// A call that nothing else is known of yet.
    pub(crate) fn new(id: CallId, tool: SmolStr, arrived: Timestamp, since: Instant) -> Self {
        let (tenant, caller) = (Tenant::default(), Caller::default());
        let (thread, run, key, model_call, trace) = (None, None, None, None, None);
        Self {
            id,
            caller_minted_id: false,
            tool,
            tenant,
            caller,
            thread,
            run,
            idempotency_key: key,
            model_call,
            trace,
            arrived_at: arrived,
            arrived_instant: since,
        }
    }

    /// The trace it belongs to.
    pub(crate) fn trace_id(&self) -> Option<TraceId> {
        self.trace.as_ref().map(|trace| trace.trace_id)
    }
}

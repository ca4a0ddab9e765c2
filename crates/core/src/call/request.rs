//! What a caller asks for: a tool, arguments, and on whose behalf.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use smol_str::SmolStr;
use tokio_util::sync::CancellationToken;

use super::{ProgressSink, Whereabouts};
use crate::{registry::Tools, step::Member};
use toolhub_storage::clock::Instant;
use toolhub_types::outcome::Status;
use toolhub_types::{
    ids::{ApprovalId, CallId, Caller, IdError, IdempotencyKey, RunId, Tenant, ThreadId},
    timestamp::Timestamp,
    trace::TraceContext,
};

/// A call on its way in. Nothing about it has been checked yet but the form of its ids.
#[derive(Clone)]
pub(crate) struct Call {
    /// This call, for ever.
    pub(crate) id: CallId,
    /// Whether its caller minted the id, and may have made a call with it before.
    pub(crate) own_id: bool,
    /// The tool's name as the caller wrote it.
    pub(crate) tool: SmolStr,
    /// What to give the tool.
    pub(crate) arguments: Value,
    /// Whose call it is.
    pub(crate) tenant: Tenant,
    /// Who asks.
    pub(crate) caller: Caller,
    /// The conversation it belongs to.
    pub(crate) thread: Option<ThreadId>,
    /// The agent run it belongs to.
    pub(crate) run: Option<RunId>,
    /// The caller's word that a repetition is the same call.
    pub(crate) key: Option<IdempotencyKey>,
    /// The id the model gave its request; unique only inside one batch.
    pub(crate) model_call: Option<SmolStr>,
    /// Where it stands in a trace that began elsewhere.
    pub(crate) trace: Option<Box<TraceContext>>,
    /// A shorter time than the tool's own.
    pub(crate) timeout: Option<Duration>,
    /// How often it is tried again, whatever its tool says.
    pub(crate) retries: Option<u32>,
    /// Somebody outside does the work instead of the tool's executor, and has this long for it.
    pub(crate) external: Option<Duration>,
    /// When it arrived, by the wall.
    pub(crate) arrived: Timestamp,
    /// When it arrived, for measuring.
    pub(crate) since: Instant,
    /// The list the caller was offered; the hub's present one where absent.
    pub(crate) among: Option<Arc<Tools>>,
    /// What is wrong with the request itself.
    pub(crate) flaw: Option<Box<IdError>>,
    /// The call goes on when nobody waits for it any more.
    pub(crate) detached: bool,
    /// Whether somebody waits who can wait for a person.
    pub(crate) can_wait: bool,
    /// Somebody waits until a person is asked, and no longer.
    pub(crate) until_asked: bool,
    /// Where others see how far it is, if it runs on a task of its own.
    pub(crate) whereabouts: Option<Arc<Whereabouts>>,
    /// Its place among the calls of one step.
    pub(crate) member: Option<Member>,
    /// Cancels the call.
    pub(crate) cancel: Option<CancellationToken>,
    /// Where its progress is wanted.
    pub(crate) progress: Option<ProgressSink>,
}

impl Call {
    /// Whether the call goes on when nobody waits for it any more. A caller with a key means to ask again.
    pub(crate) fn goes_on(&self) -> bool {
        self.detached || self.key.is_some()
    }

    /// Whether it is written down before it waits for a person: nobody may be there when the answer comes.
    pub(crate) fn outlives_its_question(&self) -> bool {
        self.detached || self.until_asked
    }

    /// The call has come so far.
    pub(crate) fn at(&self, status: Status) {
        if let Some(whereabouts) = &self.whereabouts {
            whereabouts.at(status);
        }
    }

    /// The call waits, for its turn or for a person.
    pub(crate) fn waits(&self, status: Status, asked: Option<ApprovalId>) {
        if let Some(whereabouts) = &self.whereabouts {
            whereabouts.waits(status, asked, &self.arguments);
        }
    }

    /// Whether the caller has given up on it.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancellationToken::is_cancelled)
    }
}

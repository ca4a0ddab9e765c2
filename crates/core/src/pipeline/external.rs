//! Stage 12 for an external call: waits for the result that an external worker reports.
//!
//! In: an opened external call. Out: the reported result, or a timeout. A report that arrives before the deadline
//! counts, even if it races with the timeout.

use super::{ticket::Ticket, time_limit};
use crate::{
    execution::{CallContext, Reply},
    monitor::InFlight,
};
use toolhub_types::error::{ErrorKind, ToolError};

pub(super) async fn wait_for_report(context: &CallContext, ticket: &mut Ticket<'_>) -> Result<Reply, ToolError> {
    ticket.count_attempt();
    let envelope = context.envelope();
    let call = &envelope.call;
    let Some(tracker) = &envelope.tracker else {
        return Err(ToolError::operator_only(ErrorKind::Internal, "external call has no tracker"));
    };
    if let Some(step_call) = envelope.step_call() {
        step_call.mark_external(call.id);
    }
    let _in_flight = InFlight::begin(&envelope.tool.runtime.meter);
    let reported = tokio::time::timeout_at(context.deadline(), tracker.wait_report());
    let in_time = match &call.cancel {
        None => reported.await.map_err(|_| ErrorKind::Timeout),
        Some(cancel) => match cancel.run_until_cancelled(reported).await {
            None => Err(ErrorKind::Cancelled),
            Some(reported) => reported.map_err(|_| ErrorKind::Timeout),
        },
    };
    let end = match in_time {
        Ok(result) => Ok(result),
        // From here on the tracker rejects reports.
        Err(kind) => tracker.take_report().ok_or(kind),
    };
    match end {
        Ok(result) => result.map(Reply::from),
        Err(ErrorKind::Timeout) => {
            let timeout = ToolError::with_kind(
                ErrorKind::Timeout,
                format!("no result was reported within {:?}", time_limit(envelope)),
            );
            // A caller's timeout that is shorter than the time limit of the external work says nothing about the tool.
            let by_caller = call.timeout.is_some_and(|requested| call.external.is_some_and(|limit| requested < limit));
            Err(if by_caller { timeout.uncounted() } else { timeout })
        }
        Err(_) => Err(ToolError::operator_only(ErrorKind::Cancelled, "the caller cancelled the call")),
    }
}

//! Door 12 for a call whose work somebody outside does: waits for the result.
//!
//! In: an opened call that was handed out. Out: what was reported, or that nobody did in time. A report that came before the
//! time was over counts, however close it was.

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
        return Err(ToolError::operator_only(ErrorKind::Internal, "a call that was handed out cannot be found"));
    };
    if let Some(member) = envelope.step_call() {
        member.mark_external(call.id);
    }
    let _with_somebody = InFlight::begin(&envelope.tool.runtime.meter);
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
        // From here on a report is late.
        Err(why) => tracker.take_report().ok_or(why),
    };
    match end {
        Ok(result) => result.map(Reply::from),
        Err(ErrorKind::Timeout) => {
            let late = ToolError::with_kind(
                ErrorKind::Timeout,
                format!("nobody reported the result within {:?}", time_limit(envelope)),
            );
            // A caller that is in a greater hurry than the work was given time for says nothing about the tool.
            let hurried = call.timeout.is_some_and(|wanted| call.external.is_some_and(|given| wanted < given));
            Err(if hurried { late.uncounted() } else { late })
        }
        Err(_) => Err(ToolError::operator_only(ErrorKind::Cancelled, "the caller cancelled the call")),
    }
}

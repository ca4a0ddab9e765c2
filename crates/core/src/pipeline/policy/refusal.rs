//! Refusals of calls that need an approval: denied, expired, used, or too many of them.
//!
//! In: the call and its approval. Out: the error that its caller sees.

use std::time::Duration;

use super::choice::Bound;
use crate::{
    approvals::{Approval, Approvals, StoredApproval},
    execution::CallEnvelope,
};
use toolhub_types::{
    error::{CallError, Detail, ErrorKind},
    ids::ApprovalId,
};

/// The retry delay if too many calls await approval; people take their time.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// A bound of the choice was exceeded; `identical` is the number of identical calls that await approval.
pub(super) fn too_many_waiting(envelope: &CallEnvelope, bound: Bound, identical: usize) -> CallError {
    let mut error = CallError::new(ErrorKind::Overloaded);
    match bound {
        Bound::IdenticalCalls => {
            let name = &envelope.tool.definition.name;
            error.operator(format!("{identical} identical calls of `{name}` already await approval"))
        }
        Bound::Pending => {
            error.retry_after = Some(RETRY_AFTER);
            error.operator("the maximum number of pending approvals is reached, and the share of the tenant is used up")
        }
    }
}

/// The refusal of a call whose request was denied.
pub(super) async fn denied_error(approvals: &Approvals, envelope: &CallEnvelope, stored: &StoredApproval) -> CallError {
    // A denial is delivered once; the next identical call makes a new request. If this write fails, that call gets the
    // denial again.
    let _ = approvals.mark_denial_delivered(stored, envelope.call.id).await;
    let error = CallError::new(ErrorKind::ApprovalDenied).detail(Detail::Approval(stored.approval.id));
    let answer = stored.approval.answer.as_ref();
    match answer.and_then(|answer| answer.message.as_ref()) {
        None => error,
        Some(message) => error
            .operator(format!("a person refused this call: {message}"))
            .model(format!("A person refused this call: {message}")),
    }
}

/// The refusal of a call that cannot wait for its approval. The text for the model names the id of the approval and no
/// address: a model could answer there itself.
pub(super) fn approval_required(envelope: &CallEnvelope, id: ApprovalId, reason: Option<&str>) -> CallError {
    let why = reason.map_or_else(String::new, |reason| format!(" Reason: {}.", reason.trim_end_matches('.')));
    CallError::new(ErrorKind::ApprovalRequired)
        .operator(format!(
            "`{}` needs approval {id}; repeat the call once it is approved",
            envelope.tool.definition.name
        ))
        .model(format!(
            "A person must approve this call first (approval {id}).{why} Make the same call again once it is approved."
        ))
        .detail(Detail::Approval(id))
}

/// The refusal of a call that needs an approval, made in a way that accepts none.
pub(super) fn approval_refused(envelope: &CallEnvelope) -> CallError {
    let name = &envelope.tool.definition.name;
    CallError::new(ErrorKind::Forbidden)
        .operator(format!("`{name}` needs approval, and its caller may make only calls that need none"))
        .model("This call needs the approval of a person, which cannot be requested here. Do not try it again.")
}

/// The time limit to answer the request, or to use the approval, has passed.
pub(in crate::pipeline) fn approval_expired<A>(approval: &Approval<A>, what: &str) -> CallError {
    let error = CallError::new(ErrorKind::ApprovalTimeout).operator(format!("approval {} {what}", approval.id));
    error.detail(Detail::Approval(approval.id))
}

/// An identical call has consumed the approval first. If it has the same idempotency key, it is the same call, and its
/// outcome will be replayed.
pub(in crate::pipeline) fn approval_consumed<A>(envelope: &CallEnvelope, approval: &Approval<A>) -> CallError {
    if envelope.call.idempotency_key.is_some() && envelope.call.idempotency_key == approval.key {
        return CallError::new(ErrorKind::IdempotencyInProgress);
    }
    approval_required(envelope, approval.id, None)
        .operator("the approval was used by an identical call; repeat the call to request a new one")
}

/// The hub was shut down while the call awaited approval; the tool has not run.
pub(super) fn interrupted_by_shutdown(approval: ApprovalId) -> CallError {
    CallError::new(ErrorKind::Interrupted)
        .operator(format!("the hub was shut down while the call waited for approval {approval}"))
        .model("The call was interrupted before it began.")
        .detail(Detail::Approval(approval))
}

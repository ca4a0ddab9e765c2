//! Calls that were accepted before they ended: their approval, their record and their end.

use std::time::Duration;

use toolhub::{
    Answer, ApprovalOutcome, CallReceipt, CallRecord,
    ids::{ApprovalId, CallId, Caller, Tenant},
    prelude::*,
};

/// The call and its pending approval.
#[track_caller]
pub(crate) fn expect_waiting(receipt: CallReceipt) -> (CallId, ApprovalId) {
    let CallReceipt::AwaitingApproval { call, approval, .. } = receipt else {
        panic!("no approval pending: {receipt:?}")
    };
    (call, approval)
}

pub(crate) async fn resolve(hub: &ToolHub, approval: ApprovalId, outcome: ApprovalOutcome) {
    let answer = Answer::new(outcome, Caller::new("boss").unwrap());
    hub.resolve_approval(&Tenant::default(), approval, answer).await.unwrap();
}

pub(crate) async fn record(hub: &ToolHub, call: CallId) -> CallRecord {
    hub.call_record(&Tenant::default(), call).await.unwrap().expect("the call has a record")
}

/// Waits until a call has ended; returns its record.
pub(crate) async fn wait_for_end(hub: &ToolHub, call: CallId) -> CallRecord {
    // In paused time the sleeps take no time, and let the time pass only when the call waits for something.
    for _ in 0..10_000 {
        let record = record(hub, call).await;
        if record.outcome.is_some() {
            return record;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{call} has not ended");
}

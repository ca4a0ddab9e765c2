//! Pages of the newest approvals, without a scan of all approvals.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use toolhub::{Answer, ApprovalOutcome, ApprovalState, ids::ApprovalId, prelude::*, testing::scripted};

use crate::intercepted_store::InterceptedStore;

/// A hub with this many pending approvals, in threads and outside of them; and their ids, the oldest first.
async fn hub_with_approvals(many: usize) -> (ToolHub, Arc<InterceptedStore>, Vec<ApprovalId>) {
    let store: Arc<InterceptedStore> = Arc::default();
    let ask = scripted("ask", []).0.confirm();
    let hub = ToolHub::builder().shared_store(store.clone()).tool(ask).build().await.unwrap();
    for n in 0..many {
        let call = hub.call("ask", json!({"n": n})).no_wait();
        let outcome = if n % 2 == 0 { call.thread(format!("t{}", n % 7)).await } else { call.await };
        outcome.error.unwrap().approval().unwrap();
    }
    let all = hub.approvals(&Tenant::default(), None).await.unwrap();
    let all: Vec<ApprovalId> = all.iter().map(|approval| approval.id).collect();
    assert!(all.len() == many && all.is_sorted());
    (hub, store, all)
}

#[tokio::test]
async fn pages_of_questions_follow_each_other_and_read_no_more_than_they_show() {
    let (hub, store, mut all) = hub_with_approvals(250).await;
    all.reverse();
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let scans = store.scans.load(SeqCst);
        let page = hub.newest_approvals(&Tenant::default(), None, before, 60).await.unwrap();
        assert!(store.scans.load(SeqCst) - scans <= 2, "one scan, and one more if the last page was cut");
        seen.extend(page.iter().map(|approval| approval.id));
        before = page.last().map(|last| last.id);
        if page.len() < 60 {
            break;
        }
    }
    assert_eq!(seen, all);
    let foreign = Tenant::new("other").unwrap();
    assert!(hub.newest_approvals(&foreign, None, None, 60).await.unwrap().is_empty());
}

#[tokio::test]
async fn those_in_one_state_are_found_however_old_they_are() {
    let (hub, _, all) = hub_with_approvals(30).await;
    let no = || Answer::new(ApprovalOutcome::Cancel, Caller::default());
    for id in [all[3], all[20]] {
        hub.resolve_approval(&Tenant::default(), id, no()).await.unwrap();
    }
    let newest = async |state, before, limit| -> Vec<ApprovalId> {
        let found = hub.newest_approvals(&Tenant::default(), Some(state), before, limit).await.unwrap();
        found.iter().map(|approval| approval.id).collect()
    };
    assert_eq!(newest(ApprovalState::Denied, None, 5).await, [all[20], all[3]]);
    assert_eq!(newest(ApprovalState::Denied, Some(all[20]), 5).await, [all[3]]);
    assert_eq!(newest(ApprovalState::Pending, None, 2).await, [all[29], all[28]]);
    assert_eq!(newest(ApprovalState::Used, None, 2).await, [all[0]; 0]);
}

#[tokio::test]
async fn one_that_is_rare_is_looked_for_among_many_at_a_time() {
    let (hub, store, _) = hub_with_approvals(250).await;
    let scans = store.scans.load(SeqCst);
    let found = hub.newest_approvals(&Tenant::default(), Some(ApprovalState::Used), None, 1).await.unwrap();
    let scans = store.scans.load(SeqCst) - scans;
    assert!(found.is_empty() && scans <= 10, "{scans} scans");
}

#[tokio::test]
async fn a_page_of_large_approvals_ends_early_and_the_next_one_goes_on() {
    let ask = scripted("ask", []).0.confirm();
    let hub = ToolHub::builder().tool(ask).build().await.unwrap();
    for n in 0..7 {
        hub.call("ask", json!({"n": n, "text": "x".repeat(900_000)})).no_wait().await;
    }
    let (mut sizes, mut before) = (Vec::new(), None);
    loop {
        let page = hub.newest_approvals(&Tenant::default(), None, before, 60).await.unwrap();
        sizes.push(page.len());
        match page.last() {
            Some(last) => before = Some(last.id),
            None => break,
        }
    }
    assert_eq!(sizes, [5, 2, 0]);
}

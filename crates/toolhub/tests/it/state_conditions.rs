//! Conditional writes, and threads that are used without a call.

use serde_json::json;
use toolhub::{
    StateCondition::{Absent, Any, Present, Version},
    StateKind::{Business, Cache, Connection, Session},
    prelude::*,
};

use crate::state_manager::{assert_kind, cart, data, default_manager, default_tenant};

#[tokio::test]
async fn a_write_is_made_only_where_its_condition_holds_and_answers_what_it_wrote() {
    let state = default_manager().await;
    for kind in [Business, Session, Connection] {
        let set = |n: u64, condition| {
            let state = state.clone();
            async move { state.set_state_if(&default_tenant(), &cart(), kind, (json!({"n": n}), None), condition).await }
        };
        for refused in [Present, Version(1), Version(0)] {
            assert_kind(set(1, refused).await, ErrorKind::StateConflict);
        }
        let (created, new) = set(1, Absent).await.unwrap();
        assert!(new);
        assert_eq!((created.version, &created.data, created.expires), (1, &json!({"n": 1}), None));
        assert_eq!(state.get_state(&default_tenant(), &cart(), kind).await.unwrap(), Some(created));
        assert_kind(set(2, Absent).await, ErrorKind::StateConflict);
        let (updated, new) = set(2, Version(1)).await.unwrap();
        assert_eq!((updated.version, new), (2, false));
        let stale = state.update_state_if(&default_tenant(), &cart(), kind, json!({"m": 1}), Version(1)).await;
        assert_kind(stale, ErrorKind::StateConflict);
        let patched =
            state.update_state_if(&default_tenant(), &cart(), kind, json!({"m": 1}), Version(2)).await.unwrap();
        assert_eq!((patched.version, patched.data), (3, json!({"n": 2, "m": 1})));
        assert_kind(
            state.delete_state_if(&default_tenant(), &cart(), kind, Version(2)).await,
            ErrorKind::StateConflict,
        );
        assert!(data(&state, kind).await.is_some(), "{kind}");
        assert!(state.delete_state_if(&default_tenant(), &cart(), kind, Version(3)).await.unwrap());
        assert!(
            !state.delete_state_if(&default_tenant(), &cart(), kind, Version(3)).await.unwrap(),
            "{kind}: there is no entry"
        );
    }
}

#[tokio::test]
async fn a_rollback_may_expect_a_version_and_a_cache_has_none() {
    let state = default_manager().await;
    for n in 1..=2 {
        state.set_state(&default_tenant(), &cart(), Business, json!({"n": n}), None).await.unwrap();
    }
    assert_kind(state.rollback_if(&default_tenant(), &cart(), 1, Version(1)).await, ErrorKind::StateConflict);
    let rolled_back = state.rollback_if(&default_tenant(), &cart(), 1, Version(2)).await.unwrap();
    assert_eq!((rolled_back.version, rolled_back.data), (3, json!({"n": 1})));
    let hour = Some(std::time::Duration::from_secs(3600));
    let set = |condition| {
        let state = state.clone();
        async move { state.set_state_if(&default_tenant(), &cart(), Cache, (json!({}), hour), condition).await }
    };
    assert_kind(set(Version(0)).await, ErrorKind::ArgumentsInvalid);
    assert_eq!(set(Any).await.unwrap().0.version, 0);
    assert_kind(set(Absent).await, ErrorKind::StateConflict);
    assert_eq!(set(Present).await.unwrap().0.version, 0);
}

#[tokio::test]
async fn a_thread_that_is_used_without_a_call_is_there_and_counts_none() {
    let hub = ToolHub::builder().build().await.unwrap();
    let thread = ThreadId::new("t1").unwrap();
    for _ in 0..2 {
        hub.touch_thread(&default_tenant(), &thread).await.unwrap();
    }
    let found = hub.thread(&default_tenant(), &thread).await.unwrap().unwrap();
    assert_eq!((found.id, found.calls), (thread.clone(), 0));
    assert!(hub.delete_thread(&default_tenant(), &thread).await.unwrap());
    assert_eq!(hub.thread(&default_tenant(), &thread).await.unwrap(), None);
}

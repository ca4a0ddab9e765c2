//! Sessions over restarts, between owners and with time.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde_json::json;
use toolhub_core::{
    backend::Memory,
    clock::SystemClock,
    ids::ThreadId,
    testing::{ObservedStore, StoreUse},
};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const LIMITS: SessionLimits = SessionLimits { total: 4, per_caller: 2, idle: HOUR.saturating_mul(10) };

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

fn at(hours: u32) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000) + HOUR * hours
}

fn owner(tenant: &str, caller: &str) -> SessionOwner {
    SessionOwner { tenant: Tenant::new(tenant).unwrap(), caller: Caller::new(caller).unwrap() }
}

fn session(id: &str, owner: &SessionOwner) -> McpSession {
    let client = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test"}});
    let thread = ThreadId::new(format!("thread-{id}")).unwrap();
    McpSession {
        id: id.into(),
        caller: owner.caller.clone(),
        thread,
        client,
        created_at: at(0),
        settings: SessionSettings::default(),
    }
}

#[tokio::test]
async fn a_session_is_there_for_its_owner_also_after_a_restart_until_it_is_ended() {
    let store: Arc<dyn Backend> = Arc::new(Memory::new());
    let (ann, same_name) = (owner("a", "ann"), owner("b", "ann"));
    let made = session("s1", &ann);
    McpSessions::new(store.clone(), clock()).create(&ann, &made, LIMITS, at(0)).await.unwrap();
    let sessions = McpSessions::new(store, clock());
    assert_eq!(sessions.load(&ann, "s1", at(1)).await.unwrap(), Some((made, 1)));
    for other in [&same_name, &owner("a", "bob")] {
        assert_eq!(sessions.load(other, "s1", at(1)).await.unwrap(), None);
        assert!(!sessions.remove(other, "s1", at(1)).await.unwrap());
    }
    assert_eq!((sessions.count(&ann), sessions.count(&same_name), sessions.total()), (1, 0, 1));
    assert!(sessions.remove(&ann, "s1", at(1)).await.unwrap());
    assert!(!sessions.remove(&ann, "s1", at(1)).await.unwrap());
    assert_eq!((sessions.load(&ann, "s1", at(1)).await.unwrap(), sessions.total()), (None, 0));
}

#[tokio::test]
async fn a_session_expires_a_day_after_its_last_use() {
    let store: Arc<dyn Backend> = Arc::new(Memory::new());
    let ann = owner("a", "ann");
    let sessions = McpSessions::new(store.clone(), clock());
    for id in ["used", "unused"] {
        sessions.create(&ann, &session(id, &ann), LIMITS, at(0)).await.unwrap();
    }
    sessions.touch("used", at(20));
    sessions.touch("unknown", at(20));
    sessions.flush(at(20)).await.unwrap();
    assert_eq!((sessions.total(), sessions.count(&ann)), (2, 2));
    sessions.flush(at(24)).await.unwrap();
    assert_eq!((sessions.total(), sessions.count(&ann)), (1, 1));
    let restarted = McpSessions::new(store, clock());
    assert!(restarted.load(&ann, "used", at(43)).await.unwrap().is_some());
    assert!(restarted.load(&ann, "unused", at(43)).await.unwrap().is_none());
    restarted.flush(at(43)).await.unwrap();
    assert!(restarted.load(&ann, "used", at(66)).await.unwrap().is_some(), "loading it is a use");
}

#[tokio::test]
async fn there_is_a_bound_for_each_caller_and_for_all_and_expired_sessions_do_not_count() {
    let sessions = McpSessions::new(Arc::new(Memory::new()), clock());
    let create = async |tenant, caller, id, hours| {
        let owner = owner(tenant, caller);
        sessions.create(&owner, &session(id, &owner), LIMITS, at(hours)).await
    };
    create("a", "ann", "1", 0).await.unwrap();
    create("a", "ann", "2", 1).await.unwrap();
    assert!(matches!(create("a", "ann", "3", 2).await, Err(CreateSessionError::TooManyOfCaller(2))));
    create("b", "ann", "4", 2).await.unwrap();
    create("a", "bob", "5", 2).await.unwrap();
    assert!(matches!(create("a", "eve", "6", 2).await, Err(CreateSessionError::TooMany(4))));
    create("a", "ann", "7", 24).await.unwrap();
    assert_eq!(sessions.total(), 4);
    // One that was not used for ten hours makes room for another.
    create("a", "ann", "8", 24).await.unwrap();
    assert!(sessions.load(&owner("a", "ann"), "2", at(24)).await.unwrap().is_none());
    assert!(matches!(create("a", "ann", "9", 25).await, Err(CreateSessionError::TooManyOfCaller(2))));
    assert_eq!(sessions.total(), 4);
}

#[tokio::test]
async fn one_tenant_cannot_take_the_sessions_of_the_others() {
    let sessions = McpSessions::new(Arc::new(Memory::new()), clock());
    let limits = SessionLimits { total: 40, per_caller: 1_000, idle: HOUR * 2 };
    let create = async |tenant: &str, number: u32, hour: u32| {
        let owner = owner(tenant, "ann");
        sessions.create(&owner, &session(&format!("{tenant}-{number}"), &owner), limits, at(hour)).await
    };
    create("early", 0, 0).await.unwrap();
    for number in 0..39 {
        create("large", number, 1).await.unwrap();
    }
    // It takes the place of none of another tenant, although that one was not used for longer.
    assert!(matches!(create("large", 39, 2).await, Err(CreateSessionError::TooMany(40))));
    for number in 0..2 {
        create("late", number, 2).await.unwrap();
    }
    assert!(matches!(create("late", 2, 2).await, Err(CreateSessionError::TooMany(42))));
    // When the sessions of the large tenant are unused, they make room.
    create("late", 3, 3).await.unwrap();
    assert_eq!((sessions.total(), sessions.count(&owner("large", "ann"))), (42, 38));
    assert!(sessions.load(&owner("early", "ann"), "early-0", at(3)).await.unwrap().is_some());
}

#[tokio::test]
async fn the_session_that_was_not_used_for_the_longest_time_makes_room_also_after_other_uses() {
    let sessions = McpSessions::new(Arc::new(Memory::new()), clock());
    let limits = SessionLimits { total: 3, per_caller: 3, idle: HOUR * 2 };
    let ann = owner("a", "ann");
    let create = async |id: &str, hour: u32| sessions.create(&ann, &session(id, &ann), limits, at(hour)).await;
    for (id, hour) in [("1", 0), ("2", 1), ("3", 2)] {
        create(id, hour).await.unwrap();
    }
    sessions.touch("1", at(3));
    assert_eq!(create("4", 3).await.unwrap().1.as_deref(), Some("2"));
    assert!(sessions.remove(&ann, "3", at(3)).await.unwrap());
    create("5", 3).await.unwrap();
    for _ in 0..3 {
        assert!(matches!(create("6", 4).await, Err(CreateSessionError::TooManyOfCaller(3))));
    }
    sessions.touch("4", at(4));
    sessions.touch("5", at(5));
    assert_eq!(create("7", 5).await.unwrap().1.as_deref(), Some("1"));
    assert_eq!((sessions.total(), sessions.count(&ann)), (3, 3));
    sessions.flush(at(50)).await.unwrap();
    assert_eq!((sessions.total(), sessions.count(&ann)), (0, 0));
}

#[tokio::test]
async fn what_cannot_be_stored_takes_no_place() {
    let sessions = McpSessions::new(Arc::new(Memory::new()), clock());
    let ann = owner("a", "ann");
    let mut large = session("1", &ann);
    large.client = json!("x".repeat(MAX_CLIENT_BYTES));
    let refused = sessions.create(&ann, &large, LIMITS, at(0)).await;
    assert!(matches!(refused, Err(CreateSessionError::TooLarge(_))));
    sessions.create(&ann, &session("2", &ann), LIMITS, at(0)).await.unwrap();
    assert_eq!(sessions.total(), 1);
}

#[tokio::test]
async fn many_uses_of_many_sessions_are_a_few_commits() {
    let committed = Arc::new(AtomicUsize::new(0));
    let counter = committed.clone();
    let store = ObservedStore::new(move |used| {
        counter.fetch_add(usize::from(matches!(used, StoreUse::Commit(_))), Relaxed);
    });
    let sessions = McpSessions::new(Arc::new(store), clock());
    let limits = SessionLimits { total: 1_000, per_caller: 1_000, idle: HOUR };
    let ann = owner("a", "ann");
    for number in 0..400 {
        sessions.create(&ann, &session(&format!("s{number}"), &ann), limits, at(0)).await.unwrap();
    }
    let commits = || committed.swap(0, Relaxed);
    assert_eq!(commits(), 400);
    for use_number in 0..20_u32 {
        (0..400)
            .for_each(|number| sessions.touch(&format!("s{number}"), at(1) + Duration::from_secs(use_number.into())));
    }
    sessions.flush(at(2)).await.unwrap();
    assert_eq!(commits(), 2);
    sessions.flush(at(2)).await.unwrap();
    assert_eq!(commits(), 0, "nothing was used since");
}

#[tokio::test]
async fn what_a_client_sets_on_one_node_does_not_undo_what_it_sets_on_another() {
    let store: Arc<dyn Backend> = Arc::new(Memory::new());
    let (one, two) = (McpSessions::new(store.clone(), clock()), McpSessions::new(store, clock()));
    let ann = owner("a", "ann");
    let now = SystemClock.now();
    one.create(&ann, &session("s1", &ann), LIMITS, now).await.unwrap();
    let (first, second) = tokio::join!(
        one.change_settings(&ann, "s1", |settings| settings.subscribe("test://a")),
        two.change_settings(&ann, "s1", |settings| settings.subscribe("test://b")),
    );
    let versions = [first.unwrap().unwrap().1, second.unwrap().unwrap().1];
    assert!(versions == [2, 3] || versions == [3, 2], "{versions:?}");
    let (settings, version) =
        one.change_settings(&ann, "s1", |settings| settings.unsubscribe("test://none")).await.unwrap().unwrap();
    let mut subscribed = settings.subscriptions;
    subscribed.sort();
    assert_eq!((subscribed, version), (vec!["test://a".to_owned(), "test://b".to_owned()], 4));
}

#[tokio::test]
async fn a_session_that_is_used_on_another_node_does_not_make_room() {
    let store: Arc<dyn Backend> = Arc::new(Memory::new());
    let (one, two) = (McpSessions::new(store.clone(), clock()), McpSessions::new(store, clock()));
    let ann = owner("a", "ann");
    let create = async |id: &str, hours| one.create(&ann, &session(id, &ann), LIMITS, at(hours)).await;
    create("1", 0).await.unwrap();
    create("2", 0).await.unwrap();
    // Another node has used the first one, and has written that.
    two.load(&ann, "1", at(11)).await.unwrap().unwrap();
    two.flush(at(11)).await.unwrap();
    assert_eq!(create("3", 11).await.unwrap().1.as_deref(), Some("2"));
    assert!(matches!(create("4", 11).await, Err(CreateSessionError::TooManyOfCaller(2))));
}

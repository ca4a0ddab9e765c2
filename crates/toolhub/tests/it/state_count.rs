//! The count of stored states, over all tenants.

use std::{sync::Arc, time::Duration};

use toolhub::{
    BusinessStateConfig, ManagerType, StateKind,
    StateKind::{Business, Cache, Connection, Session},
    StateManager, StateManagerConfig,
    backend::{Backend, Memory},
    prelude::*,
    testing::TestClock,
};

async fn put(state: &StateManager, tenant: &str, context: &str, kind: StateKind) {
    let ttl = (kind == Cache).then_some(Duration::from_secs(60));
    let tenant = Tenant::new(tenant).unwrap();
    state.set_state(&tenant, &context.parse().unwrap(), kind, json!({}), ttl).await.unwrap();
}

async fn counts_by_kind(state: &StateManager) -> [u64; 4] {
    let many = state.count().await.unwrap();
    [Business, Cache, Connection, Session].map(|kind| many[&kind])
}

#[tokio::test(start_paused = true)]
async fn each_kind_counts_for_itself_until_it_has_expired() {
    let clock = TestClock::new();
    let hub = ToolHub::builder().clock(clock.clone()).build().await.unwrap();
    let state = hub.state();
    assert_eq!(counts_by_kind(&state).await, [0; 4]);
    for (tenant, context, kind) in [
        ("main", "t1/cart", Business),
        ("main", "t2/cart", Business),
        ("other", "t1/cart", Business),
        ("main", "t1/cart", Cache),
        ("main", "t1/line", Connection),
    ] {
        put(&state, tenant, context, kind).await;
    }
    assert_eq!(counts_by_kind(&state).await, [3, 1, 1, 0]);
    clock.advance(Duration::from_secs(60)).await;
    assert_eq!(counts_by_kind(&state).await, [3, 0, 1, 0]);
}

#[tokio::test]
async fn the_row_that_a_session_is_known_by_is_no_state() {
    let config = StateManagerConfig { manager_type: Some(ManagerType::Session), ..Default::default() };
    let hub = ToolHub::builder().state_manager(config).build().await.unwrap();
    put(&hub.state(), "main", "t1/cart", Business).await;
    assert_eq!(counts_by_kind(&hub.state()).await, [1, 0, 0, 0]);
}

#[derive(Default, Serialize, Deserialize)]
struct Notes(Vec<String>);
impl ToolState for Notes {
    const NAME: &'static str = "notes";
}

async fn note(_: NoArguments, _: State<Notes>) -> Result<(), ToolError> {
    Ok(())
}

#[tokio::test]
async fn states_of_all_stores_count_and_what_was_left_behind_in_one_does_not() {
    let (disk, own): (Arc<Memory>, Arc<Memory>) = Default::default();
    let before = ToolHub::builder().shared_store(own.clone()).build().await.unwrap();
    put(&before.state(), "main", "t1/notes", Business).await;
    put(&before.state(), "main", "t1/cart", Business).await;
    drop(before);
    let hub = ToolHub::builder().shared_store(own).tool(tool("note", note).manager_type(ManagerType::Persistent));
    let hub = hub.state_store_factory(move |_, _: &BusinessStateConfig| Ok::<Arc<dyn Backend>, String>(disk.clone()));
    let hub = hub.build().await.unwrap();
    assert_eq!(counts_by_kind(&hub.state()).await, [1, 0, 0, 0], "expired notes are not counted");
    put(&hub.state(), "main", "t2/notes", Business).await;
    put(&hub.state(), "main", "t3/notes", Business).await;
    assert_eq!(counts_by_kind(&hub.state()).await, [3, 0, 0, 0]);
}

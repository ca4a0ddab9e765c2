//! Hubs on a SQLite file: increments are exact, and state survives a restart.

use std::{sync::Arc, time::Duration};

use toolhub::{ConflictResolution, Sqlite, prelude::*, sqlite::Options, testing::AssertOutcome};

use toolhub_testkit::{TempFolder, soak};

#[derive(Default, Serialize, Deserialize)]
struct Count {
    count: u64,
}
impl ToolState for Count {
    const NAME: &'static str = "count";
}

async fn add(_: NoArguments, mut count: State<Count>) -> Result<u64, ToolError> {
    Ok(count.update(|count| {
        count.count += 1;
        count.count
    }))
}

async fn show(_: NoArguments, count: State<Count>) -> Result<u64, ToolError> {
    Ok(count.count)
}

async fn hub_on(store: &Arc<Sqlite>) -> ToolHub {
    let hub = ToolHub::builder().shared_store(store.clone()).max_queued_per_tool(10_000).max_queued(10_000);
    let tools = [tool("add", add).on_conflict(ConflictResolution::Retry), tool("show", show).read_only()];
    hub.tools(tools).build().await.unwrap()
}

async fn current_count(hub: &ToolHub) -> Value {
    hub.call("show", json!({})).thread("t").await.assert_success().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_on_two_hubs_are_exact_and_there_after_a_restart() {
    let each: u64 = soak(5, 100);
    let folder = TempFolder::new();
    let path = folder.path().join("store.db");
    let store = Arc::new(Sqlite::open(&path, Options::default()).unwrap());
    let hubs = [hub_on(&store).await, hub_on(&store).await];
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..64 {
        let hub = hubs[task % 2].clone();
        tasks.spawn(async move {
            for _ in 0..each {
                hub.call("add", json!({})).thread("t").await.assert_success();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    for hub in &hubs {
        assert_eq!(current_count(hub).await, 64 * each);
    }
    drop(hubs);
    // The background tasks of hubs end a moment later, and only then is the file free.
    let free = async {
        while Arc::strong_count(&store) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), free).await.expect("the store is still in use");
    drop(store);

    let hub = hub_on(&Arc::new(Sqlite::open(&path, Options::default()).unwrap())).await;
    assert_eq!(current_count(&hub).await, 64 * each);
    assert_eq!(*hub.call("add", json!({})).thread("t").await.assert_success(), 64 * each + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_hands_a_store_to_a_hub_can_still_make_a_backup_of_it() {
    let folder = TempFolder::new();
    let store = Arc::new(Sqlite::open(folder.path().join("store.db"), Options::default()).unwrap());
    let hub = ToolHub::builder().store(store.clone()).tool(tool("add", add)).build().await.unwrap();
    hub.call("add", json!({})).thread("t").await.assert_success();
    let copy = folder.path().join("copy.db");
    assert_eq!(store.backup(&copy).await.unwrap().path, copy);
    assert_eq!(store.quarantined_rows().await.unwrap().len(), 0);
    hub.shutdown(Duration::from_secs(10)).await;
    drop((hub, store));

    let later = ToolHub::builder().store(Sqlite::open(&copy, Options::default()).unwrap());
    let later = later.tool(tool("show", show).read_only()).build().await.unwrap();
    assert_eq!(current_count(&later).await, 1);
    later.shutdown(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evidence_that_is_damaged_on_the_disk_is_found_again_in_the_journal() {
    let folder = TempFolder::new();
    let path = folder.path().join("store.db");
    let hub = async || {
        let store = Sqlite::open(&path, Options::default()).unwrap();
        let tools = [tool("base", add), tool("next", show).after("base")];
        ToolHub::builder().store(store).tools(tools).build().await.unwrap()
    };
    let before = hub().await;
    before.call("base", json!({})).thread("t").await.assert_success();
    before.call("next", json!({})).thread("t").await.assert_success();
    before.shutdown(Duration::from_secs(10)).await;
    drop(before);
    let file = rusqlite::Connection::open(&path).unwrap();
    assert_eq!(file.execute("UPDATE rows SET stamp = stamp + 1 WHERE tab = 'evidence'", ()).unwrap(), 1);
    drop(file);

    let hub = hub().await;
    hub.call("next", json!({})).thread("t").await.assert_success();
    hub.shutdown(Duration::from_secs(10)).await;
}

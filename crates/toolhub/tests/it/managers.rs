//! The persistent manager applies its config: path, format, durability and backups.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use toolhub::{
    BusinessStateConfig, HubBuilder, ManagerType, PersistenceFormat, StateKind::Business, StateManagerConfig,
    WriteDurability, prelude::*, testing::AssertOutcome,
};
use toolhub_testkit::TempFolder;

use crate::{shop_tools::add_to_cart, state_manager::default_tenant};

/// The config of a hub with its states in this folder.
fn states_folder(folder: &TempFolder) -> PathBuf {
    folder.path().join("states")
}

fn config(folder: &TempFolder, format: PersistenceFormat) -> StateManagerConfig {
    StateManagerConfig {
        manager_type: Some(ManagerType::Persistent),
        persistence_path: states_folder(folder),
        persistence_format: format,
        ..Default::default()
    }
}

fn builder(config: StateManagerConfig, business: BusinessStateConfig) -> HubBuilder {
    let hub =
        ToolHub::builder().state_manager(config).business_state(business).state_store_factory(toolhub::open_store);
    hub.tool(tool("add_to_cart", add_to_cart))
}

/// A long sku that compresses well.
fn item() -> Value {
    json!({"sku": "tea ".repeat(200), "qty": 1})
}

async fn add(hub: &ToolHub) -> Outcome {
    let outcome = hub.call("add_to_cart", item()).thread("t").await;
    outcome.assert_success();
    outcome
}

async fn close(hub: ToolHub) {
    hub.shutdown(Duration::from_secs(5)).await;
}

async fn version(hub: &ToolHub) -> Option<u64> {
    let cart = "t/cart".parse().unwrap();
    hub.state().get_state(&default_tenant(), &cart, Business).await.unwrap().map(|entry| entry.version)
}

/// All files under a folder.
fn list_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { list_files(&path) } else { vec![path] }).collect()
}

fn ends_with(path: &Path, ending: &str) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.ends_with(ending))
}

#[tokio::test]
async fn states_outlive_the_process_in_the_folder_and_the_form_that_the_owner_says() {
    for (format, ending) in [(PersistenceFormat::Sqlite, "state.db"), (PersistenceFormat::Json, ".json")] {
        let folder = TempFolder::new();
        let hub = || builder(config(&folder, format), BusinessStateConfig::default()).build();
        for round in 1..=3 {
            let hub = hub().await.unwrap();
            assert_eq!(add(&hub).await.durability, WriteDurability::Durable);
            assert_eq!(version(&hub).await, Some(round), "{format:?}");
            let history = hub.state().history(&default_tenant(), &"t/cart".parse().unwrap(), 99).await.unwrap();
            assert_eq!(history.len() as u64, 3 * round, "{format:?}");
            close(hub).await;
        }
        assert!(list_files(&states_folder(&folder)).iter().any(|path| ends_with(path, ending)), "{format:?}");
    }
}

#[tokio::test]
async fn a_file_of_states_is_text_that_people_can_read() {
    let folder = TempFolder::new();
    let hub = builder(config(&folder, PersistenceFormat::Json), BusinessStateConfig::default()).build().await.unwrap();
    add(&hub).await;
    close(hub).await;
    let text =
        list_files(&states_folder(&folder)).into_iter().find(|path| ends_with(path, ".json")).map(fs::read_to_string);
    assert!(text.unwrap().unwrap().contains("tea tea tea"));
}

#[tokio::test]
async fn states_are_packed_where_either_config_says_so_and_read_back_as_they_were() {
    let plain = BusinessStateConfig::default;
    let packed = || BusinessStateConfig { state_compression: true, ..plain() };
    for format in [PersistenceFormat::Sqlite, PersistenceFormat::Json] {
        for (compression, business) in [(true, plain()), (false, packed())] {
            let folder = TempFolder::new();
            // Written uncompressed first: existing states stay readable.
            let first = builder(config(&folder, format), plain()).build().await.unwrap();
            add(&first).await;
            close(first).await;
            let config = StateManagerConfig { compression, ..config(&folder, format) };
            let hub = builder(config, business).build().await.unwrap();
            add(&hub).await;
            let entry =
                hub.state().get_state(&default_tenant(), &"t/cart".parse().unwrap(), Business).await.unwrap().unwrap();
            assert_eq!(entry.data["lines"], json!([["tea ".repeat(200), 1], ["tea ".repeat(200), 1]]));
            assert_eq!(hub.state().versions(&default_tenant(), &"t/cart".parse().unwrap()).await.unwrap().len(), 2);
            close(hub).await;
            match format {
                PersistenceFormat::Json => {
                    assert!(list_files(&states_folder(&folder)).iter().any(|path| ends_with(path, ".json.zst")));
                }
                PersistenceFormat::Sqlite => {
                    let file = rusqlite::Connection::open(states_folder(&folder).join("state.db")).unwrap();
                    let long = "SELECT max(length(value)) FROM rows WHERE tab = 'state'";
                    let longest: Result<i64, _> = file.query_row(long, (), |row| row.get(0));
                    assert!(longest.unwrap() < 400, "the state is smaller than its text");
                }
            }
        }
    }
}

#[tokio::test]
async fn written_behind_an_answer_says_so_and_the_end_of_the_hub_writes_what_waits() {
    for format in [PersistenceFormat::Sqlite, PersistenceFormat::Json] {
        let folder = TempFolder::new();
        let hour = Duration::from_secs(3600);
        let business = || BusinessStateConfig { sync_on_change: false, sync_interval: hour, ..Default::default() };
        let hub = builder(config(&folder, format), business()).build().await.unwrap();
        let outcome = add(&hub).await;
        assert_eq!(outcome.durability, WriteDurability::WriteBehind);
        assert_eq!(serde_json::to_value(&outcome).unwrap()["durability"], "behind");
        let record = hub.call_record(&default_tenant(), outcome.id).await.unwrap().unwrap();
        assert_eq!(record.outcome.unwrap().durability, WriteDurability::WriteBehind);
        assert_eq!(version(&hub).await, Some(1), "it is visible immediately");
        close(hub).await;
        let hub = builder(config(&folder, format), BusinessStateConfig::default()).build().await.unwrap();
        assert_eq!(version(&hub).await, Some(1), "{format:?}");
    }
}

#[tokio::test]
async fn what_waits_is_written_at_the_interval() {
    let folder = TempFolder::new();
    let soon = Duration::from_millis(20);
    let business = BusinessStateConfig { sync_on_change: false, sync_interval: soon, ..Default::default() };
    let hub = builder(config(&folder, PersistenceFormat::Json), business).build().await.unwrap();
    add(&hub).await;
    let written = || list_files(&states_folder(&folder)).iter().any(|path| ends_with(path, ".json") && holds_tea(path));
    // It arrives by itself; otherwise the test would hang.
    while !written() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn holds_tea(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.contains("tea tea"))
}

#[tokio::test]
async fn backups_are_made_at_the_interval_and_kept_as_long_as_the_owner_says() {
    for format in [PersistenceFormat::Sqlite, PersistenceFormat::Json] {
        check_backups(format).await;
    }
}

async fn check_backups(format: PersistenceFormat) {
    let folder = TempFolder::new();
    let (often, soon) = (Duration::from_millis(30), Duration::from_millis(1));
    let business = BusinessStateConfig {
        backup_enabled: true,
        backup_interval: often,
        backup_retention: soon,
        ..Default::default()
    };
    let hub = builder(config(&folder, format), business).build().await.unwrap();
    add(&hub).await;
    let backups = states_folder(&folder).join("backups");
    let all = || {
        let paths = fs::read_dir(&backups).into_iter().flatten().map(|entry| entry.unwrap().path());
        let ending = if format == PersistenceFormat::Sqlite { ".db" } else { "Z" };
        let mut all: Vec<PathBuf> = paths.filter(|path| ends_with(path, ending)).collect();
        all.sort();
        all
    };
    // The first may be older than the call. Two later ones show the interval, and that old ones are deleted.
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 3 {
        seen.extend(all());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    close(hub).await;
    assert!(all().len() < seen.len(), "the oldest was deleted");
    let last = all().pop().unwrap();
    let other = TempFolder::new();
    toolhub::restore_store(&last, &config(&other, format)).unwrap();
    let hub = builder(config(&other, format), BusinessStateConfig::default()).build().await.unwrap();
    assert_eq!(version(&hub).await, Some(1));
    close(hub).await;
}

#[tokio::test]
async fn what_cannot_be_opened_is_reported_and_settings_without_effect_are_refused() {
    let folder = TempFolder::new();
    fs::write(states_folder(&folder), "a file where the folder should be").unwrap();
    let refused = builder(config(&folder, PersistenceFormat::Sqlite), BusinessStateConfig::default()).build().await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains(states_folder(&folder).to_str().unwrap()), "{refused}");
    // Settings of the persistent manager without one.
    let config = StateManagerConfig { compression: true, ..Default::default() };
    let business = BusinessStateConfig { backup_enabled: true, ..Default::default() };
    let refused = builder(config, business).build().await.unwrap_err().to_string();
    for field in ["compression", "backup_enabled", "manager_type = persistent"] {
        assert!(refused.contains(field), "{field}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn states_are_on_the_redis_server_in_the_database_and_under_the_prefix_that_the_owner_says() {
    let server = toolhub_testkit::RedisServer::start();
    let config = |database: u32, prefix: &str| StateManagerConfig {
        manager_type: Some(ManagerType::Distributed),
        redis_url: Some(server.url()),
        redis_prefix: prefix.into(),
        redis_db: database,
        ..Default::default()
    };
    let build = |config| builder(config, BusinessStateConfig::default()).build();
    for (database, prefix, expected) in
        [(0, "tool_state", 1), (0, "tool_state", 2), (0, "mine", 1), (3, "tool_state", 1), (3, "tool_state", 2)]
    {
        let hub = build(config(database, prefix)).await.unwrap();
        add(&hub).await;
        assert_eq!(version(&hub).await, Some(expected), "{database} {prefix}");
        close(hub).await;
    }
    let wrong = StateManagerConfig { redis_url: Some("localhost".into()), ..config(0, "tool_state") };
    let refused = build(wrong).await.unwrap_err().to_string();
    assert!(refused.contains("redis_url"), "{refused}");
}

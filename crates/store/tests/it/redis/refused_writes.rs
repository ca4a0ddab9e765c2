//! A server that answers but refuses writes: what to change there is said when the store is opened, in a warning, and with each commit.

use std::time::Duration;

use toolhub_storage::backend::{Backend, Change, StoreError, Write};
use toolhub_store::{
    Redis,
    redis::{Address, OpenError, Options, SettingNames},
};
use toolhub_testkit::RedisServer;

use super::fixtures::{open, options, refused};
use crate::fixtures::{commit, get, put};

fn set(server: &RedisServer, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        assert_eq!(server.cli(&["CONFIG", "SET", name, value]), "OK", "{name}");
    }
}

/// Makes the next snapshot of the server fail, after which it refuses writes.
fn fail_snapshot(server: &RedisServer) {
    std::fs::create_dir(server.folder().join("dump.rdb")).unwrap();
    set(server, &[("save", "3600 1")]);
    assert!(server.cli(&["BGSAVE"]).contains("Background saving started"));
    while !server.cli(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err") {}
}

/// Why a server refuses writes.
struct Case {
    make: fn(&RedisServer),
    heal: fn(&RedisServer),
    /// What the message says.
    parts: &'static [&'static str],
    /// What the warning says.
    warning: &'static str,
}

const CASES: [Case; 3] = [
    Case {
        make: |server| set(server, &[("min-replicas-to-write", "2")]),
        heal: |server| set(server, &[("min-replicas-to-write", "0")]),
        parts: &["`min-replicas-to-write`", "(NOREPLICAS)"],
        warning: "it has 0 replicas in time, and `min-replicas-to-write` is 2",
    },
    Case {
        make: |server| set(server, &[("maxmemory", "1000")]),
        heal: |server| set(server, &[("maxmemory", "0")]),
        parts: &["raise `maxmemory`", "(OOM)"],
        warning: "the memory of Redis is full",
    },
    Case {
        make: fail_snapshot,
        heal: |server| set(server, &[("stop-writes-on-bgsave-error", "no")]),
        parts: &["`stop-writes-on-bgsave-error no`", "(MISCONF)"],
        warning: "Redis cannot write its snapshots",
    },
];

#[test]
fn opening_a_new_store_on_a_server_that_refuses_writes_names_the_setting_to_change() {
    for Case { make, parts, warning, .. } in CASES {
        let server = RedisServer::start();
        make(&server);
        let found = Redis::inspect(options(&server)).unwrap().warnings.join(" ");
        assert!(found.contains(warning), "{warning} is missing: {found}");
        let error = refused(options(&server));
        let text = error.to_string();
        assert!(matches!(error, OpenError::Failed(_)) && parts.iter().all(|part| text.contains(part)), "{text}");
        assert_eq!(server.cli(&["DBSIZE"]), "0", "nothing is written");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_to_a_server_that_refuses_writes_fail_with_the_setting_to_change_and_reads_go_on() {
    for Case { make, heal, parts, warning } in CASES {
        let server = RedisServer::start();
        let store = open(options(&server).operation_timeout(Duration::from_secs(2)));
        commit(&*store, "t", vec![put("a", b"1")]).await.unwrap();
        assert_eq!(store.write_error(), None);
        make(&server);
        let error = commit(&*store, "t", vec![put("b", b"1")]).await.unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, StoreError::Unavailable(_)) && parts.iter().all(|part| text.contains(part)),
            "{error:?}"
        );
        assert!(get(&*store, "t", "a").await.unwrap().is_some());
        let refusal = store.write_error().unwrap_or_default();
        assert!(parts.iter().all(|part| refusal.contains(part)), "{refusal}");
        // A later start does not fail in its own first write either, but in that of the hub.
        let warnings = open(options(&server)).warnings().join(" ");
        assert!(warnings.contains(warning), "{warning} is missing: {warnings}");
        heal(&server);
        commit(&*store, "t", vec![put("b", b"1")]).await.unwrap();
        assert_eq!(store.write_error(), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_on_a_server_without_memory_does_not_end_the_refusal_of_records() {
    let server = RedisServer::start();
    let store = open(options(&server));
    commit(&*store, "t", vec![put("a", b"1")]).await.unwrap();
    set(&server, &[("maxmemory", "1000")]);
    commit(&*store, "t", vec![put("b", b"1")]).await.unwrap_err();
    commit(&*store, "t", vec![Write { change: Change::Remove, ..put("a", b"") }]).await.unwrap();
    assert!(store.write_error().is_some_and(|refusal| refusal.contains("`maxmemory`")));
    set(&server, &[("maxmemory", "0")]);
    commit(&*store, "t", vec![put("b", b"1")]).await.unwrap();
    assert_eq!(store.write_error(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_some_of_its_slots_is_refused_with_what_to_do_at_the_start_and_later() {
    let server = RedisServer::start_with(&["--appendonly yes", "--cluster-enabled yes"]);
    let address = Address::parse(&format!("redis+cluster://127.0.0.1:{}", server.port())).unwrap();
    let check = || {
        let text = refused(Options::new(address.clone())).to_string();
        assert!(text.contains("`redis-cli --cluster fix`") && text.contains("hash slots"), "{text}");
    };
    check();
    // All but one.
    assert_eq!(server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16382"]), "OK");
    check();
    assert_eq!(server.cli(&["CLUSTER", "ADDSLOTS", "16383"]), "OK");
    while !server.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok") {}
    let store = open(Options::new(address.clone()).operation_timeout(Duration::from_secs(2)));
    commit(&*store, "t", vec![put("a", b"1")]).await.unwrap();
    assert_eq!(server.cli(&["CLUSTER", "DELSLOTS", "16383"]), "OK");
    while !server.cli(&["CLUSTER", "INFO"]).contains("cluster_state:fail") {}
    let error = commit(&*store, "t", vec![put("a", b"2")]).await.unwrap_err();
    let is_named = error.to_string().contains("`redis-cli --cluster fix`");
    assert!(matches!(error, StoreError::Unavailable(_)) && is_named, "{error:?}");
}

#[test]
fn a_database_that_the_server_does_not_have_is_named() {
    let server = RedisServer::start();
    let address = |number| Address::parse(&server.url()).unwrap().database(number);
    let error = refused(Options::new(address(16)));
    assert!(matches!(error, OpenError::Database { database: 16, .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("has no database 16") && text.contains("`store.url`") && text.contains("`databases`"),
        "{text}"
    );
    drop(open(Options::new(address(15))));

    let names = SettingNames { url: "state.redis_url", database: "state.redis_db", key_prefix: "state.redis_prefix" };
    let text = refused(Options::new(address(16)).setting_names(names)).to_string();
    assert!(text.contains("a lower number in `state.redis_db`") && !text.contains("store.url"), "{text}");
    let text = refused(Options::new(address(0)).prefix("{}").setting_names(names)).to_string();
    assert!(text.contains("`state.redis_prefix`") && !text.contains("store.key_prefix"), "{text}");
}

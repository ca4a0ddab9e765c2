//! Opening refuses servers on which records would be lost, and says which setting to change. Nothing is written by a refused opening.

use toolhub_storage::backend::{Backend, StoreError};
use toolhub_store::{
    Redis,
    redis::{Address, OpenError, Options},
};
use toolhub_testkit::{OldRedis, RedisServer};

use super::fixtures::{open, options, refused};
use crate::fixtures::{commit, get, put};

#[test]
fn a_server_that_loses_records_is_refused_unless_that_is_accepted() {
    let server = RedisServer::start_with(&["--appendonly no"]);
    let error = refused(options(&server));
    assert!(matches!(error, OpenError::NoAppendOnlyFile), "{error}");
    assert!(error.to_string().contains("`store.redis.volatile = true`"), "{error}");
    assert_eq!(server.cli(&["DBSIZE"]), "0", "nothing is written");
    drop(open(options(&server).volatile(true)));

    let server = RedisServer::start_with(&["--appendonly yes", "--maxmemory-policy allkeys-lru"]);
    let error = refused(options(&server));
    assert!(matches!(&error, OpenError::Eviction { policy } if policy == "allkeys-lru"), "{error}");
    assert_eq!(server.cli(&["DBSIZE"]), "0", "nothing is written");
    drop(open(options(&server).volatile(true)));
}

#[test]
fn what_survives_a_power_failure_is_said() {
    let server = RedisServer::start();
    assert_eq!(open(options(&server)).warnings(), [""; 0], "each write is synced");
    assert_eq!(server.cli(&["CONFIG", "SET", "appendfsync", "everysec"]), "OK");
    let warnings = open(options(&server)).warnings().join(" ");
    assert!(warnings.contains("`appendfsync always`"), "{warnings}");
    let denied =
        server.cli(&["ACL", "SETUSER", "hub", "on", ">secret", "~toolhub:*", "&toolhub:*", "+@all", "-config"]);
    assert_eq!(denied, "OK");
    let address = Address::parse(&server.url().replace("//", "//hub:secret@")).unwrap();
    let warnings = open(Options::new(address)).warnings().join(" ");
    assert!(warnings.contains("unknown what survives a power failure"), "{warnings}");
}

#[test]
fn a_wrong_password_and_a_missing_permission_are_named() {
    let server = RedisServer::start_with(&["--appendonly yes", "--requirepass right"]);
    let with = |credentials: &str| {
        Options::new(Address::parse(&server.url().replace("//", &format!("//{credentials}@"))).unwrap())
    };
    for credentials in [":wrong", "nobody:right"] {
        let error = refused(with(credentials));
        assert!(matches!(error, OpenError::Password { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("`store.redis.user` and `store.redis.password`")
                && !text.contains("wrong")
                && !text.contains("right"),
            "{text}"
        );
    }
    let error = refused(options(&server));
    assert!(matches!(error, OpenError::Password { .. }), "no password at all: {error}");
    drop(open(with(":right")));
}

/// The store as a user with all permissions but these.
fn options_of_user(server: &RedisServer, denied: &[&str]) -> Options {
    let rules = [&["ACL", "SETUSER", "hub", "reset", "on", ">secret", "~toolhub:*", "&toolhub:*", "+@all"][..], denied];
    assert_eq!(server.cli(&rules.concat()), "OK");
    Options::new(Address::parse(&server.url().replace("//", "//hub:secret@")).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_the_user_may_not_run_is_named_before_anything_is_written() {
    let server = RedisServer::start();
    for denied in ["publish", "zadd", "hincrby", "subscribe", "smembers", "evalsha", "hstrlen"] {
        let error = refused(options_of_user(&server, &[&format!("-{denied}")]));
        let text = error.to_string();
        assert!(matches!(error, OpenError::Permission(_)) && text.contains(&denied.to_uppercase()), "{text}");
    }
    for denied in [["resetkeys", "~other:*"], ["resetchannels", "&other:*"]] {
        let error = refused(options_of_user(&server, &denied));
        assert!(matches!(error, OpenError::Permission(_)), "{error}");
    }
    assert_eq!(server.cli(&["DBSIZE"]), "0", "nothing is written");

    let store = open(options_of_user(&server, &[]));
    commit(&*store, "t", vec![put("a", b"1")]).await.unwrap();
    options_of_user(&server, &["-publish"]);
    let aborted = commit(&*store, "t", vec![put("b", b"1")]).await;
    assert!(matches!(aborted, Err(StoreError::Unknown(_))), "a part of it is written: {aborted:?}");
}

#[test]
fn what_is_no_primary_of_the_right_kind_is_refused() {
    let primary = RedisServer::start();
    let replica = RedisServer::start_with(&["--appendonly yes", &format!("--replicaof 127.0.0.1 {}", primary.port())]);
    let error = refused(options(&replica));
    assert!(matches!(error, OpenError::Replica { .. }), "{error}");
    let cluster = RedisServer::start_with(&["--appendonly yes", "--cluster-enabled yes"]);
    let error = refused(options(&cluster));
    assert!(matches!(error, OpenError::IsCluster { .. }) && error.to_string().contains("redis+cluster://"), "{error}");
    let address = Address::parse(&format!("redis+cluster://127.0.0.1:{}", primary.port())).unwrap();
    let error = refused(Options::new(address));
    assert!(matches!(error, OpenError::NoCluster { .. }), "{error}");
}

#[test]
fn a_server_that_is_too_old_is_refused_with_its_version() {
    for (version, is_old) in [("6.2.14", true), ("5.0.3", true), ("7.0.0", false)] {
        let error = refused(Options::new(Address::parse(&OldRedis::start(version).url()).unwrap()));
        let is_refused_so = matches!(&error, OpenError::TooOld { found } if found == version);
        assert_eq!(is_refused_so, is_old, "{error}");
    }
}

#[test]
fn a_server_that_does_not_answer_is_named_without_its_password() {
    let mut server = RedisServer::start();
    server.kill();
    let address = Address::parse(&server.url().replace("//", "//:hunter2@")).unwrap();
    let error = refused(Options::new(address));
    let text = error.to_string();
    assert!(matches!(error, OpenError::Unreachable { .. }), "{text}");
    assert!(
        text.contains(&server.port().to_string()) && text.contains("store.url") && !text.contains("hunter2"),
        "{text}"
    );
}

#[test]
fn keys_of_others_and_of_later_versions_are_left_alone() {
    let server = RedisServer::start();
    for prefix in ["", "a{b}", "}"] {
        assert!(matches!(refused(options(&server).prefix(prefix)), OpenError::Prefix(_)), "{prefix:?}");
    }
    assert_eq!(server.cli(&["SET", "foreign:store", "x"]), "OK");
    assert!(matches!(refused(options(&server).prefix("foreign")), OpenError::Foreign(_)));
    assert_eq!(server.cli(&["HSET", "later:store", "schema", "7", "buckets", "1"]), "2");
    let error = refused(options(&server).prefix("later"));
    assert!(matches!(error, OpenError::Newer { found: 7, known: 1 }), "{error}");
    assert_eq!(server.cli(&["DBSIZE"]), "2", "nothing is written");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_buckets_is_that_of_the_first_opening() {
    let server = RedisServer::start();
    let store = open(options(&server).buckets(8));
    for n in 0..20 {
        commit(&*store, &format!("t{n}"), vec![put("a", b"1")]).await.unwrap();
    }
    drop(store);
    let store = open(options(&server).buckets(64));
    for n in 0..20 {
        assert!(get(&*store, &format!("t{n}"), "a").await.unwrap().is_some());
    }
    assert_eq!(server.cli(&["HGET", "toolhub:store", "buckets"]), "8");
    let warnings = store.warnings().join(" ");
    assert!(warnings.contains("has 8 buckets") && warnings.contains("`store.redis.buckets = 64`"), "{warnings}");
    assert_eq!(open(options(&server).buckets(8)).warnings(), [""; 0]);
    assert_eq!(open(options(&server)).warnings(), [""; 0]);
}

#[test]
fn an_inspection_finds_what_an_opening_would_and_writes_nothing() {
    let server = RedisServer::start();
    let commands =
        || server.cli(&["INFO", "persistence"]).lines().find(|line| line.contains("rdb_changes")).map(str::to_owned);
    let before = commands();
    let found = Redis::inspect(options(&server)).unwrap();
    assert!(!found.exists && found.servers.len() == 1 && found.warnings.is_empty(), "{found:?}");
    assert_eq!((server.cli(&["DBSIZE"]).as_str(), commands()), ("0", before));
    drop(open(options(&server).buckets(8)));
    assert_eq!(server.cli(&["CONFIG", "SET", "appendfsync", "everysec"]), "OK");
    let before = commands();
    let found = Redis::inspect(options(&server).buckets(64)).unwrap();
    let warnings = found.warnings.join(" ");
    assert!(
        found.exists && warnings.contains("`appendfsync always`") && warnings.contains("has 8 buckets"),
        "{found:?}"
    );
    assert_eq!(commands(), before);
    assert_eq!(server.cli(&["CONFIG", "SET", "appendonly", "no"]), "OK");
    assert!(matches!(Redis::inspect(options(&server)), Err(OpenError::NoAppendOnlyFile)));
}

#[test]
fn a_server_with_replicas_that_does_not_wait_for_one_gives_a_warning() {
    let primary = RedisServer::start();
    let replica_of = format!("--replicaof 127.0.0.1 {}", primary.port());
    let replica = RedisServer::start_with(&["--appendonly yes", &replica_of]);
    while !replica.is_synchronized() {}
    let warnings = open(options(&primary)).warnings().join(" ");
    assert!(warnings.contains("`min-replicas-to-write 1`"), "{warnings}");
    assert_eq!(primary.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]), "OK");
    while !primary.cli(&["INFO", "replication"]).contains("min_slaves_good_slaves:1") {}
    assert_eq!(open(options(&primary)).warnings(), [""; 0]);
}

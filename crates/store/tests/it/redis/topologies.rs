//! The store on a Cluster, behind Sentinel, and over TLS.

use std::time::Duration;

use futures_util::StreamExt;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use toolhub_storage::{
    backend::{Backend, Change, Scan, Scope, StoreError, Table, WatchEvent},
    testing::contract,
};
use toolhub_store::redis::{Address, OpenError, Options, TlsFiles};
use toolhub_testkit::{RedisCluster, RedisServer, TempFolder, soak};

use super::fixtures::{commit_when_back, numbered_prefix, open, options, refused};
use crate::fixtures::{NOW, commit, get, put};

#[tokio::test(flavor = "multi_thread")]
async fn the_store_on_a_cluster_keeps_every_promise_on_all_of_its_servers() {
    let cluster = RedisCluster::start();
    let options = || Options::new(Address::parse(&cluster.url()).unwrap());
    let store = open(options());
    let mut watcher = store.watch(Table::State);
    for n in 0..60 {
        commit(&*store, &format!("t{n}"), vec![put("a", b"1")]).await.unwrap();
    }
    let mut changes = 0;
    while changes < 60 {
        let event = tokio::time::timeout(Duration::from_secs(10), watcher.next()).await.expect("an event arrives");
        changes += usize::from(matches!(event, Some(WatchEvent::Row(..))));
    }
    let page = store.scan(Scan::new(Table::State, Scope::All), NOW).await.unwrap();
    assert_eq!(page.rows.len(), 60);
    for server in cluster.servers() {
        let partitions = server.cli(&["KEYS", "toolhub:*:p:*"]).lines().count();
        assert!((8..=35).contains(&partitions), "{partitions} of 60 partitions are on one of three servers");
    }
    // Some of the servers do not have the scripts.
    let expires = Some(NOW + Duration::from_millis(1));
    for n in 0..30 {
        let mut ending = put("ending", b"1");
        ending.change = Change::Put { value: b"1".as_slice().into(), schema: 1, expires };
        commit(&*store, &format!("t{n}"), vec![ending]).await.unwrap();
    }
    assert_eq!(store.sweep(5, NOW + Duration::from_secs(1)).await, Ok(5));
    assert_eq!(cluster.servers()[1].cli(&["SCRIPT", "FLUSH"]), "OK");
    assert_eq!(store.sweep(100, NOW + Duration::from_secs(1)).await, Ok(25), "each row is swept and counted once");
    drop(store);
    let make = async || open(options().prefix(numbered_prefix()));
    contract::check_against_model(make, soak(5, 500), fastrand::u64(..)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_fail_over_the_store_goes_on_with_the_new_primary() {
    let mut primary = RedisServer::start();
    let replica = RedisServer::start_with(&["--appendonly yes", &format!("--replicaof 127.0.0.1 {}", primary.port())]);
    while !replica.cli(&["INFO", "replication"]).contains("master_link_status:up") {}
    let sentinel = RedisServer::start_sentinel(primary.port(), 1);
    // It learns of the replica from the primary.
    while !sentinel.cli(&["SENTINEL", "REPLICAS", "main"]).contains(&replica.port().to_string()) {}
    let store =
        open(Options::new(Address::parse(&format!("redis+sentinel://127.0.0.1:{}/main/0", sentinel.port())).unwrap()));
    let first = commit(&*store, "t", vec![put("a", b"1")]).await.unwrap();
    assert_eq!(first, [1]);
    assert_eq!(primary.cli(&["WAIT", "1", "1000"]), "1");
    let mut watcher = store.watch(Table::State);
    primary.kill();
    let second = commit_when_back(&store, "t", vec![put("a", b"2")]).await.unwrap();
    assert!(second[0] > 1 << 32, "no version that the old primary gave out can be given out again: {second:?}");
    assert_eq!(replica.cli(&["ROLE"]).lines().next(), Some("master"));
    assert_eq!(*get(&*store, "t", "a").await.unwrap().unwrap().value, *b"2");
    let event = tokio::time::timeout(Duration::from_secs(10), watcher.next()).await.expect("an event arrives");
    assert_eq!(event, Some(WatchEvent::Lagged), "watchers are told that they may have missed changes");
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_with_a_password_of_their_own_name_the_new_primary_also_when_one_of_them_is_gone() {
    let mut primary = RedisServer::start();
    let replica = RedisServer::start_with(&["--appendonly yes", &format!("--replicaof 127.0.0.1 {}", primary.port())]);
    while !replica.cli(&["INFO", "replication"]).contains("master_link_status:up") {}
    let start = || RedisServer::start_sentinel_with(primary.port(), 2, "requirepass watch");
    let mut sentinels = [start(), start(), start()];
    let is_ready = |sentinel: &RedisServer| {
        let ask = |words: &[&str]| sentinel.cli(&[&["-a", "watch", "SENTINEL"], words].concat());
        ask(&["CKQUORUM", "main"]).contains("3 usable")
            && ask(&["REPLICAS", "main"]).contains(&replica.port().to_string())
    };
    while !sentinels.iter().all(is_ready) {}
    let hosts = sentinels.each_ref().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).join(",");
    let options = || Options::new(Address::parse(&format!("redis+sentinel://{hosts}/main/0")).unwrap());
    for wrong in [options(), options().sentinel_password("wrong")] {
        let error = refused(wrong).to_string();
        assert!(error.contains("`store.redis.sentinel_password`"), "{error}");
    }
    let store = open(options().sentinel_password("watch"));
    assert!(store.warnings().iter().any(|warning| warning.contains("min-replicas-to-write")), "{:?}", store.warnings());
    commit(&*store, "t", vec![put("a", b"1")]).await.unwrap();
    sentinels[0].kill();
    primary.kill();
    commit_when_back(&store, "t", vec![put("a", b"2")]).await.unwrap();
    assert_eq!(replica.cli(&["ROLE"]).lines().next(), Some("master"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_read_from_a_server_that_has_become_a_replica() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let store = open(options(&server).operation_timeout(Duration::from_secs(2)));
    commit(&*store, "t", vec![put("a", b"1")]).await.unwrap();
    assert_eq!(server.cli(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]), "OK");
    while !matches!(get(&*store, "t", "a").await, Err(StoreError::Unavailable(reason)) if reason.contains("replica")) {
        let refused = commit(&*store, "t", vec![put("a", b"2")]).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    }
    assert_eq!(server.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    commit_when_back(&store, "t", vec![put("a", b"3")]).await.unwrap();
    while !get(&*store, "t", "a").await.is_ok_and(|row| row.is_some_and(|row| *row.value == *b"3")) {}
}

/// A certificate authority, and a certificate and key that it signed for this machine.
fn certificates(folder: &TempFolder) -> TlsFiles {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.distinguished_name.push(DnType::CommonName, "authority of a test");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    folder.write("ca.pem", &authority.pem());
    folder.write("server.pem", &certificate.pem());
    folder.write("server.key", &key.serialize_pem());
    let client = Some((certificate.pem().into_bytes(), key.serialize_pem().into_bytes()));
    TlsFiles { authorities: Some(authority.pem().into_bytes()), client }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_both_sides_show_their_certificates() {
    let folder = TempFolder::new();
    let files = certificates(&folder);
    let file = |setting: &str, name: &str| format!("--{setting} {}", folder.join(name).display());
    let server = RedisServer::start_with(&[
        "--appendonly yes",
        "--tls-port {port} --port 0",
        &file("tls-cert-file", "server.pem"),
        &file("tls-key-file", "server.key"),
        &file("tls-ca-cert-file", "ca.pem"),
    ]);
    let options = || Options::new(Address::parse(&format!("rediss://127.0.0.1:{}/0", server.port())).unwrap());
    let store = open(options().tls(files.clone()));
    commit(&*store, "t", vec![put("a", b"1")]).await.unwrap();
    assert!(get(&*store, "t", "a").await.unwrap().is_some());
    drop(store);
    for incomplete in [TlsFiles { authorities: None, ..files.clone() }, TlsFiles { client: None, ..files }] {
        let error = refused(options().tls(incomplete).operation_timeout(Duration::from_secs(5)));
        assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    }
}

//! Scans and sweeps with large rows, in the order of bytes, and with index entries that this version cannot read.

use std::time::Duration;

use toolhub_storage::backend::{Backend, Change, Scan, Scope, Table, Write};
use toolhub_store::Redis;
use toolhub_testkit::RedisServer;

use super::fixtures::{open, options};
use crate::fixtures::{NOW, commit, put, thread};

/// Ids of all rows of a scan, in pages.
async fn ids(store: &Redis, scan: Scan) -> Vec<String> {
    let (mut ids, mut scan) = (Vec::new(), scan);
    loop {
        let page = store.scan(scan.clone(), NOW).await.unwrap();
        ids.extend(page.rows.iter().map(|(key, _)| key.id.to_string()));
        let Some(next) = page.next else { return ids };
        scan.after = Some(next);
    }
}

fn expiring(id: &str) -> Write {
    let change =
        Change::Put { value: b"1".as_slice().into(), schema: 1, expires: Some(NOW + Duration::from_millis(1)) };
    Write { change, ..put(id, b"") }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_large_rows_is_read_in_several_steps() {
    let server = RedisServer::start();
    let store = open(options(&server));
    let value = vec![b'x'; 1 << 20];
    for n in 0..20 {
        let id = format!("{n:02}");
        commit(&*store, "t", vec![put(&id, &value)]).await.unwrap();
        commit(&*store, &format!("t{n}"), vec![put(&id, &value)]).await.unwrap();
    }
    let reads = |command: &str| {
        let stats = server.cli(&["INFO", "commandstats"]);
        let calls = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        calls.and_then(|calls| calls.split(',').next()?.parse::<u32>().ok()).unwrap_or(0)
    };
    assert_eq!(server.cli(&["CONFIG", "RESETSTAT"]), "OK");
    let page = store.scan(Scan::new(Table::State, Scope::Partition(thread("t"))), NOW).await.unwrap();
    assert_eq!(page.rows.len(), 20);
    assert!(reads("evalsha") + reads("eval") >= 5, "4 MiB at a time");
    let first = store.scan(Scan::new(Table::State, Scope::Partition(thread("t"))).limit(1), NOW).await.unwrap();
    assert_eq!((first.rows.len(), first.next.is_some()), (1, true));
    assert_eq!(ids(&store, Scan::new(Table::State, Scope::All)).await.len(), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_partition_is_in_the_order_of_bytes_as_a_large_one_is() {
    let server = RedisServer::start();
    let store = open(options(&server));
    let mut expected: Vec<String> =
        ["B", "_", "a", "aa", "b-", "b", "é", "Z1", "longer-than-six", "longer-than-seven", "longer"]
            .map(Into::into)
            .into();
    for id in &expected {
        commit(&*store, "t", vec![put(id, b"1")]).await.unwrap();
    }
    expected.sort();
    let scan = Scan::new(Table::State, Scope::Partition(thread("t")));
    for limit in [1, 2, 5, 100] {
        assert_eq!(ids(&store, scan.clone().limit(limit)).await, expected, "pages of {limit}");
        let mut descending = ids(&store, Scan { descending: true, ..scan.clone().limit(limit) }).await;
        descending.reverse();
        assert_eq!(descending, expected, "pages of {limit}, from the end");
    }
    assert_eq!(ids(&store, scan.prefix("longer-than-s")).await, ["longer-than-seven", "longer-than-six"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_this_version_cannot_read_stop_neither_sweeps_nor_scans() {
    let server = RedisServer::start();
    let store = open(options(&server));
    commit(&*store, "t", vec![expiring("a"), expiring("b"), put("c", b"1")]).await.unwrap();
    let add = |key: &str, member: &str| {
        let script = format!("return redis.call('ZADD', KEYS[1], 0, '{member}')");
        assert_eq!(server.cli(&["EVAL", &script, "1", &server.cli(&["KEYS", key])]), "1");
    };
    for n in 0..5 {
        add("toolhub:*:expiries", &format!("main/t/t\\0later{n}/x"));
        add("toolhub:*:expiries", &format!("garbage {n}"));
        add("toolhub:*:i:state:main", &format!("0 garbage {n}"));
    }
    let later = NOW + Duration::from_secs(1);
    let page = store.scan(Scan::new(Table::State, Scope::All), later).await.unwrap();
    assert_eq!(page.rows.iter().map(|(key, _)| key.id.as_str()).collect::<Vec<_>>(), ["c"]);
    assert_eq!(store.count_by_id(Table::State, later).await.unwrap().into_keys().collect::<Vec<_>>(), ["c"]);
    assert_eq!(store.sweep(1, later).await, Ok(1));
    assert_eq!(store.sweep(100, later).await, Ok(1), "rows behind the others are found");
    assert_eq!(
        server.cli(&["ZCARD", &server.cli(&["KEYS", "toolhub:*:expiries"])]),
        "10",
        "another version may need them"
    );
}

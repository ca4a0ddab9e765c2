//! What is noticed while a store is open.

use std::time::Duration;

use toolhub_storage::backend::Backend;
use toolhub_testkit::RedisServer;

use super::fixtures::{open, options};

/// Waits until the store reports this.
async fn wait_for(holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("it is noticed");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_endanger_records_and_a_memory_that_fills_up_are_noticed_while_the_store_is_open() {
    let server = RedisServer::start();
    let store = open(options(&server));
    assert_eq!((store.warnings(), store.memory_pressure()), (Vec::new(), None));
    let report = store.servers().unwrap();
    let [primary] = &report.servers[..] else { panic!("{report:?}") };
    let (role, address) = (primary.role(), server.url());
    assert_eq!((role, &primary.persistence[..], &primary.address), ("primary", "aof always", &address), "{primary}");
    assert!(primary.memory > 0 && primary.memory_limit.is_none() && primary.version.starts_with(char::is_numeric));
    // Both have the clock of this machine.
    assert!(report.clock_difference.abs() < 60.0 && report.notification_gaps == 0, "{report:?}");
    let set = |name: &str, value: &str| assert_eq!(server.cli(&["CONFIG", "SET", name, value]), "OK");
    set("appendonly", "no");
    set("maxmemory-policy", "allkeys-lru");
    // So much that nothing else counts.
    assert_eq!(server.cli(&["SETRANGE", "filler", "20000000", "x"]), "20000001");
    let info = server.cli(&["INFO", "memory"]);
    let used = info.lines().find_map(|line| line.trim().strip_prefix("used_memory:")).unwrap().parse::<u64>().unwrap();
    set("maxmemory", &(used * 10 / 9).to_string());
    let has = |text: &str| store.warnings().iter().any(|warning| warning.contains(text));
    wait_for(|| has("`appendonly yes`") && has("80 %")).await;
    assert!(store.memory_pressure().is_some_and(|used| used > 0.8), "{:?}", store.memory_pressure());
    let now = store.servers().unwrap().servers.remove(0);
    assert!(now.persistence == "no aof" && now.memory_limit > Some(20_000_000), "{now}");
    set("maxmemory", "0");
    set("maxmemory-policy", "noeviction");
    set("appendonly", "yes");
    wait_for(|| store.warnings().is_empty() && store.memory_pressure().is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_the_store_is_that_of_its_server() {
    let server = RedisServer::start();
    let store = open(options(&server));
    let clock = store.clock().unwrap();
    let time =
        || server.cli(&["EVAL", "local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000)", "0"]);
    let (before, shown, after) = (time(), clock.now().millis(), time());
    // Half the time that the answer took may be missing at either end.
    let range = before.parse::<i64>().unwrap() - 5000..=after.parse::<i64>().unwrap() + 5000;
    assert!(range.contains(&shown), "{shown} is not in {range:?}");
}

//! Updates per second in Redis, measured interleaved with the store's own script, called directly.
//!
//! Both sides load a state of 1 KiB and write it if its version is unchanged. The bare side sends the same commands with the same script,
//! over the same kind of connection, with arguments that were prepared as far as possible; it checks nothing of what it reads, takes part in no
//! epoch, and does not repeat what got no answer.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use redis::{Cmd, Value, aio::MultiplexedConnection};
use toolhub::{
    Redis,
    backend::{Backend, Durability, Expect, Partition},
    redis::{Address, Options},
};
use toolhub_testkit::RedisServer;

use crate::{
    rates::{NOW, TASKS, key, median, ops_per_second, partition, put_batch},
    verdict,
};

const ROUNDS: usize = 15;
const TARGET: f64 = 0.9;
const ROW: &str = "state/cart/business";
/// What the store sends as an expiry that never comes, as a precondition that always holds, and as the checksum, which no script reads.
const NEVER: [u8; 8] = i64::MAX.to_be_bytes();
const LAYOUT: [u8; 4] = 1_u32.to_be_bytes();
const SCRIPT: &str = concat!(
    "#!lua flags=\n",
    include_str!("../../../../crates/store/src/redis/script/rows.lua"),
    include_str!("../../../../crates/store/src/redis/script/epoch.lua"),
    include_str!("../../../../crates/store/src/redis/script/commit.lua"),
);

/// The script without the store around it. Reads and writes have a connection each, as those of the store.
struct BareScript {
    reads: MultiplexedConnection,
    writes: MultiplexedConnection,
    checksum: String,
    /// Prefix and tag of the only bucket.
    bucket: String,
    epoch: String,
    history: String,
    stamps: AtomicU64,
}

impl BareScript {
    /// Uses the empty store with this prefix.
    async fn open(server: &RedisServer, prefix: &str) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        let mut writes = client.get_multiplexed_async_connection().await.unwrap();
        let reads = client.get_multiplexed_async_connection().await.unwrap();
        let pattern = format!("{prefix}:{{*:meta");
        let meta: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut writes).await.unwrap();
        let ask = redis::cmd("HMGET").arg(&meta[0]).arg("epoch").arg("server").clone();
        let (epoch, history) = ask.query_async(&mut writes).await.unwrap();
        let checksum = redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query_async(&mut writes).await.unwrap();
        let bucket = meta[0].trim_end_matches("meta").to_owned();
        Self { reads, writes, checksum, bucket, epoch, history, stamps: AtomicU64::new(1) }
    }

    /// Writes a state if it has this version and stamp, or in any case; returns its new version.
    async fn put(&self, partition: &str, expect: &[u8], value: &[u8]) -> i64 {
        let stamp = self.stamps.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let (now, bucket, tenant) = (NOW.millis(), &self.bucket, "main");
        let no_terms = [0; 8];
        let rest = [now.to_be_bytes().as_slice(), &stamp, &LAYOUT, &no_terms, value].concat();
        let answer = format!("{bucket}a:{:016x}{:016x}", u64::from_be_bytes(stamp), 0);
        let names =
            ["meta", "expiries", "tenants", "i:state:main", "t:state:main"].map(|name| format!("{bucket}{name}"));
        let [meta, expiries, tenants, ids, terms] = &names;
        let mut command = Cmd::with_capacity(32, 2048);
        command.arg("EVALSHA").arg(&self.checksum).arg(8);
        command.arg(format!("{bucket}p:{partition}")).arg(format!("{bucket}o:{partition}"));
        command.arg(meta).arg(expiries).arg(answer).arg(tenants).arg(ids).arg(terms);
        command.arg(now).arg(now.to_be_bytes().as_slice()).arg("0").arg("0").arg("180000").arg(partition);
        command.arg(&partition[tenant.len()..]).arg(tenant).arg(format!("{bucket}changes:0")).arg("PUBLISH");
        command.arg(&self.epoch).arg(&self.history).arg("0");
        command
            .arg("state")
            .arg("cart/business")
            .arg("7")
            .arg(expect)
            .arg("put")
            .arg(NEVER.as_slice())
            .arg("0")
            .arg(rest);
        let answer: Value = command.query_async(&mut self.writes.clone()).await.unwrap();
        let Value::Array(parts) = answer else { panic!("the script answers {answer:?}") };
        match &parts[..] {
            [Value::BulkString(status), _, Value::Array(versions)] if status == b"ok" => {
                let [Value::Int(version)] = versions[..] else { panic!("{versions:?}") };
                version
            }
            _ => panic!("the script refuses: {parts:?}"),
        }
    }

    async fn update(&self, partition: &str) {
        let load = redis::cmd("HMGET").arg(format!("{}p:{partition}", self.bucket)).arg(ROW).clone();
        let (row,): (Vec<u8>,) = load.query_async(&mut self.reads.clone()).await.unwrap();
        let expect = [&row[..8], &row[32..40]].concat();
        self.put(partition, &expect, &row[52..]).await;
    }
}

async fn update(store: &Redis, partition: Partition) {
    let keys = [key(partition)];
    let row = store.load(&keys, NOW).await.unwrap().pop().flatten().unwrap();
    let [row_key] = keys;
    let batch = put_batch(row_key.partition, row.value, Expect::Same(row.version), Durability::KillSafe);
    store.commit(batch, NOW).await.unwrap();
}

pub(crate) async fn measure_all() {
    let value = vec![b'x'; 1024];
    let partitions: Vec<Partition> = (0..TASKS).map(|n| partition(&format!("thread-{n:04}"))).collect();
    let names: Vec<String> = partitions.iter().map(ToString::to_string).collect();
    println!("\n{:<44} {:>10} {:>10} {:>7}  target", "per second, Redis, 64 tasks, 1 KiB", "store", "script", "ratio");
    for (sync, name) in [("everysec", "updates, synced each second"), ("always", "updates, synced each time")] {
        let server = RedisServer::start_with(&["--appendonly yes", &format!("--appendfsync {sync}")]);
        let options = |prefix: &str| Options::new(Address::parse(&server.url()).unwrap()).prefix(prefix.to_owned());
        let store = Arc::new(Redis::open(options("store")).unwrap());
        drop(Redis::open(options("bare")).unwrap());
        let bare = Arc::new(BareScript::open(&server, "bare").await);
        for (partition, name) in partitions.iter().zip(&names) {
            let first = put_batch(partition.clone(), value.as_slice().into(), Expect::Any, Durability::KillSafe);
            store.commit(first, NOW).await.unwrap();
            bare.put(name, b"", &value).await;
        }
        let (mut store_rates, mut bare_rates) = (Vec::new(), Vec::new());
        // The first round is a warm-up. The sides take turns in going first.
        for round in 0..=ROUNDS {
            let (mut store_rate, mut bare_rate) = (0.0, 0.0);
            for turn in 0..2 {
                if (round + turn) % 2 == 0 {
                    let bare = bare.clone();
                    let operation = move |name: String| {
                        let bare = bare.clone();
                        async move { bare.update(&name).await }
                    };
                    bare_rate = ops_per_second(&names, operation).await;
                } else {
                    let store = store.clone();
                    let operation = move |partition| {
                        let store = store.clone();
                        async move { update(&store, partition).await }
                    };
                    store_rate = ops_per_second(&partitions, operation).await;
                }
            }
            if round > 0 {
                store_rates.push(store_rate);
                bare_rates.push(bare_rate);
            }
        }
        let ratio = median(store_rates.iter().zip(&bare_rates).map(|(store, bare)| store / bare).collect());
        let (store_rate, bare_rate) = (median(store_rates), median(bare_rates));
        println!(
            "{name:<44} {store_rate:>10.0} {bare_rate:>10.0} {ratio:>7.2}  ≥ {TARGET}  {}",
            verdict(ratio >= TARGET)
        );
    }
}

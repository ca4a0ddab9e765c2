//! What a call costs in Redis, by its kind: bytes of memory, and commands.
//!
//! The bytes are the growth of the server's memory over many calls. Those of the record are the part that the call itself brings: arguments,
//! output, times. The rest beside it is names, indexes and the overhead of Redis. For three minutes the answer to each commit is stored, too; it
//! is counted apart.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use redis::aio::MultiplexedConnection;
use toolhub::{
    Redis,
    prelude::*,
    redis::{Address, Options},
};
use toolhub_testkit::RedisServer;

use crate::verdict;

const CALLS: usize = 10_000;
const CALLS_PER_THREAD: usize = 50;
/// Bytes beside the record of a call.
const TARGET: i64 = 650;
/// Background tasks write the records of plain calls within this time.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Default, Serialize, Deserialize)]
struct Count {
    count: u64,
}
impl ToolState for Count {
    const NAME: &'static str = "count";
}

async fn look(_: NoArguments) -> Result<u64, ToolError> {
    Ok(1)
}

async fn add(_: NoArguments, mut count: State<Count>) -> Result<u64, ToolError> {
    Ok(count.update(|count| {
        count.count += 1;
        count.count
    }))
}

/// A kind of call.
struct Kind {
    name: &'static str,
    tool: &'static str,
    in_thread: bool,
    is_keyed: bool,
}

const KINDS: [Kind; 6] = [
    Kind { name: "plain read-only", tool: "look", in_thread: true, is_keyed: false },
    Kind { name: "plain read-only, no thread", tool: "look", in_thread: false, is_keyed: false },
    Kind { name: "with effect", tool: "pay", in_thread: true, is_keyed: false },
    Kind { name: "with effect, no thread", tool: "pay", in_thread: false, is_keyed: false },
    Kind { name: "with state", tool: "add", in_thread: true, is_keyed: false },
    Kind { name: "with effect and key", tool: "pay", in_thread: true, is_keyed: true },
];

pub(crate) async fn measure_all() {
    println!(
        "\n{:<30} {:>8} {:>8} {:>8} {:>10} {:>9} {:>10}  target",
        "bytes and commands of a call", "bytes", "record", "beside", "for 3 min", "scripts", "in scripts"
    );
    for kind in &KINDS {
        measure(kind).await;
    }
}

async fn measure(kind: &Kind) {
    let server = RedisServer::start_with(&["--appendonly yes", "--appendfsync everysec"]);
    let client = redis::Client::open(server.url()).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let store = Redis::open(Options::new(Address::parse(&server.url()).unwrap())).unwrap();
    let tools = [tool("look", look).read_only(), tool("pay", look), tool("add", add)];
    let hub = ToolHub::builder().shared_store(Arc::new(store)).tools(tools).build().await.unwrap();
    call(&hub, kind, CALLS).await;
    tokio::time::sleep(PAUSE).await;
    let before = memory(&mut redis).await;
    () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut redis).await.unwrap();
    for n in 0..CALLS {
        call(&hub, kind, n).await;
    }
    while stored_calls(&mut redis).await < CALLS + 1 {
        tokio::time::sleep(PAUSE).await;
    }
    tokio::time::sleep(PAUSE).await;
    let commands = commands(&mut redis).await;
    let with_answers = memory(&mut redis).await;
    let answers: Vec<String> = redis::cmd("KEYS").arg("toolhub:{*}:a:*").query_async(&mut redis).await.unwrap();
    for answers in answers.chunks(1000) {
        () = redis::cmd("UNLINK").arg(answers).query_async(&mut redis).await.unwrap();
    }
    // The server removes them in the background, and gives the memory of their table back.
    tokio::time::sleep(4 * PAUSE).await;
    let after = memory(&mut redis).await;
    let (count, bytes) = records(&mut redis).await;
    assert_eq!(count, CALLS + 1, "{}", kind.name);
    let per_call = |bytes: i64| bytes / i64::try_from(CALLS).unwrap();
    let (all, record) = (per_call(after - before), i64::try_from(bytes / count).unwrap());
    let beside = all - record;
    let scripts: u64 = commands.iter().filter(|(name, _)| name.starts_with("eval")).map(|(_, calls)| calls).sum();
    let others: u64 = commands.values().sum::<u64>() - scripts;
    println!(
        "{:<30} {all:>8} {record:>8} {beside:>8} {:>10} {:>9.2} {:>10.1}  ≤ {TARGET} beside  {}",
        kind.name,
        per_call(with_answers - after),
        rate(scripts),
        rate(others),
        verdict(beside <= TARGET)
    );
    drop(hub);
}

async fn call(hub: &ToolHub, kind: &Kind, n: usize) {
    let call = hub.call(kind.tool, json!({}));
    let call = if kind.in_thread { call.thread(format!("thread-{}", n / CALLS_PER_THREAD).as_str()) } else { call };
    let call = if kind.is_keyed { call.idempotency_key(format!("order-{n}").as_str()) } else { call };
    assert!(call.await.is_success());
}

#[allow(clippy::cast_precision_loss, reason = "a mean of a few thousand calls")]
fn rate(count: u64) -> f64 {
    count as f64 / CALLS as f64
}

async fn info(redis: &mut MultiplexedConnection, section: &str) -> BTreeMap<String, String> {
    let text: String = redis::cmd("INFO").arg(section).query_async(redis).await.unwrap();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

/// The memory of the server, without its buffers.
async fn memory(redis: &mut MultiplexedConnection) -> i64 {
    let fields = info(redis, "memory").await;
    let number = |name: &str| fields.get(name).map_or(0, |value| value.parse::<i64>().unwrap());
    number("used_memory") - number("mem_clients_normal") - number("mem_aof_buffer") - number("used_memory_scripts")
}

/// How often each command was executed.
async fn commands(redis: &mut MultiplexedConnection) -> BTreeMap<String, u64> {
    let fields = info(redis, "commandstats").await;
    let count = |(name, value): (String, String)| {
        let calls = value.split(',').find_map(|field| field.strip_prefix("calls="))?;
        Some((name.strip_prefix("cmdstat_")?.to_owned(), calls.parse().ok()?))
    };
    fields.into_iter().filter_map(count).collect()
}

async fn stored_calls(redis: &mut MultiplexedConnection) -> usize {
    let keys: Vec<String> = redis::cmd("KEYS").arg("toolhub:{*}:i:calls:*").query_async(redis).await.unwrap();
    let Some(key) = keys.first() else { return 0 };
    redis::cmd("ZCARD").arg(key).query_async(redis).await.unwrap()
}

/// The number of records of calls, and the sum of their bytes, without what the store adds to each value: versions, times, index terms.
async fn records(redis: &mut MultiplexedConnection) -> (usize, usize) {
    const SCRIPT: &str = "
        local count, bytes = 0, 0
        for _, key in ipairs(redis.call('KEYS', 'toolhub:{*}:p:*')) do
            local row = redis.call('HGETALL', key)
            for i = 1, #row, 2 do
                if string.sub(row[i], 1, 6) == 'calls/' then
                    local head = 52 + struct.unpack('>I4', row[i + 1], 49)
                    count, bytes = count + 1, bytes + #row[i + 1] - head
                end
            end
        end
        return {count, bytes}";
    redis::cmd("EVAL").arg(SCRIPT).arg(0).query_async(redis).await.unwrap()
}

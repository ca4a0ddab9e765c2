//! Round trips to a real Redis server on the path of a call.

use std::{sync::Arc, time::Duration};

use toolhub::{
    Redis,
    prelude::*,
    redis::{Address, Options},
    testing::AssertOutcome,
};
use toolhub_testkit::{RedisServer, TcpProxy};

/// The background tasks of store and hub send requests of their own, a few in ten seconds. Beside most of so many calls there are none.
const CALLS: usize = 15;
/// After so long without a request, what a call left to background tasks is written.
const QUIET: Duration = Duration::from_millis(30);

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

async fn show(_: NoArguments, count: State<Count>) -> Result<u64, ToolError> {
    Ok(count.count)
}

struct CountedHub {
    hub: ToolHub,
    proxy: TcpProxy,
    _server: RedisServer,
}

impl CountedHub {
    async fn start() -> Self {
        let server = RedisServer::start();
        let proxy = TcpProxy::start(server.port());
        let address = format!("redis://127.0.0.1:{}/0", proxy.port());
        let store = Redis::open(Options::new(Address::parse(&address).unwrap())).unwrap();
        let tools =
            [tool("look", look).read_only(), tool("show", show).read_only(), tool("pay", look), tool("add", add)];
        let hub = ToolHub::builder().shared_store(Arc::new(store)).tools(tools).build().await.unwrap();
        Self { hub, proxy, _server: server }
    }

    /// The round trips from a call to its outcome.
    async fn of_one_call(&self, tool: &str, key: Option<String>) -> u64 {
        self.wait_until_quiet().await;
        let call = self.hub.call(tool, json!({})).thread("t");
        let call = match key {
            Some(key) => call.idempotency_key(key),
            None => call,
        };
        let before = self.proxy.round_trips();
        let outcome = call.await;
        let after = self.proxy.round_trips();
        outcome.assert_success();
        after - before
    }

    /// The median of several calls.
    async fn count(&self, tool: &str, is_keyed: bool) -> u64 {
        let key = |n: usize| is_keyed.then(|| format!("{tool}-{n}"));
        // The first call may send a script that the server does not have yet.
        self.of_one_call(tool, key(CALLS)).await;
        let mut counts = Vec::new();
        for n in 0..CALLS {
            counts.push(self.of_one_call(tool, key(n)).await);
        }
        counts.sort_unstable();
        counts[CALLS / 2]
    }

    async fn wait_until_quiet(&self) {
        let mut known = None;
        while known != Some(self.proxy.round_trips()) {
            known = Some(self.proxy.round_trips());
            tokio::time::sleep(QUIET).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_makes_as_few_round_trips_to_redis_as_its_kind_needs() {
    let counted = CountedHub::start().await;
    let mut found = Vec::new();
    for (tool, is_keyed) in
        [("look", false), ("pay", false), ("show", false), ("add", false), ("pay", true), ("add", true)]
    {
        found.push((tool, is_keyed, counted.count(tool, is_keyed).await));
    }
    let expected = [
        // Its record is written afterwards, together with others.
        ("look", false, 0),
        // The opening and the closing record.
        ("pay", false, 2),
        // The state; a read writes none.
        ("show", false, 1),
        // The state, then as above.
        ("add", false, 3),
        // The lookup of the key, and its claim.
        ("pay", true, 4),
        ("add", true, 5),
    ];
    assert_eq!(found, expected);
}

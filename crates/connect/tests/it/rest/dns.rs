//! DNS lookups with a slow resolver.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::sync::Semaphore;
use toolhub_connect::rest::{Resolve, Rest, Upstreams};
use toolhub_core::{BoxFuture, ConnectionStateConfig, Effect, ErrorKind, HubBuilder, ToolHub, testing::AssertOutcome};

use super::support::{Server, any_object_schema, wait_until};

/// A resolver that waits for a permit before each result, and counts lookups.
#[derive(Clone)]
struct GatedResolver {
    lookups: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl GatedResolver {
    fn new() -> Self {
        Self { lookups: Arc::default(), gate: Arc::new(Semaphore::new(0)) }
    }

    fn lookups(&self) -> usize {
        self.lookups.load(Ordering::Relaxed)
    }
}

impl Resolve for GatedResolver {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            self.gate.acquire().await.unwrap().forget();
            Ok(vec![Ipv4Addr::LOCALHOST.into()])
        })
    }
}

/// A hub with numbered tools, spread over a number of hosts.
async fn hub(
    slow: &GatedResolver,
    port: u16,
    (tools, hosts): (usize, usize),
    config: ConnectionStateConfig,
) -> ToolHub {
    let upstreams = Upstreams::with_resolver(slow.clone());
    let tools = (0..tools).map(|number| {
        let host = format!("host-{}.example", number % hosts);
        let rest = Rest::post(format!("http://{host}:{port}/")).allow_host(host).upstreams(&upstreams);
        rest.connection(config.clone()).tool_with(&format!("it_{number}"), any_object_schema())
    });
    tools.fold(ToolHub::builder(), HubBuilder::tool).build().await.unwrap()
}

#[tokio::test]
async fn calls_to_a_host_that_nobody_finds_ask_for_it_once() {
    let (slow, server) = (GatedResolver::new(), Server::echo().await);
    let config =
        ConnectionStateConfig { retry_attempts: 1, connect_timeout: Duration::from_millis(20), ..Default::default() };
    let hub = hub(&slow, server.address.port(), (24, 1), config).await;
    // Concurrently, and in sequence.
    for round in 0..3 {
        let calls: Vec<_> =
            (0..8).map(|number| hub.call(format!("it_{}", 8 * round + number), json!({})).start()).collect();
        for call in calls {
            call.await.assert_effect(Effect::None).assert_error(ErrorKind::Timeout);
        }
    }
    assert_eq!(slow.lookups(), 1);
}

#[tokio::test]
async fn whoever_waits_for_a_host_gets_the_answer_of_the_first_who_asked() {
    let (slow, server) = (GatedResolver::new(), Server::echo().await);
    let hub = hub(&slow, server.address.port(), (1, 1), ConnectionStateConfig::default()).await;
    let calls: Vec<_> = (0..4).map(|_| hub.call("it_0", json!({})).start()).collect();
    wait_until(|| slow.lookups() == 1).await;
    slow.gate.add_permits(1);
    for call in calls {
        call.await.assert_success();
    }
    assert_eq!(slow.lookups(), 1);
}

#[tokio::test]
async fn only_so_many_hosts_are_asked_for_at_once_and_all_are_found() {
    let (slow, server) = (GatedResolver::new(), Server::echo().await);
    let hub = hub(&slow, server.address.port(), (100, 100), ConnectionStateConfig::default()).await;
    let calls: Vec<_> = (0..100).map(|number| hub.call(format!("it_{number}"), json!({})).start()).collect();
    wait_until(|| slow.lookups() == 32).await;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(slow.lookups(), 32);
    slow.gate.add_permits(100);
    for call in calls {
        call.await.assert_success();
    }
    assert_eq!(slow.lookups(), 100);
}

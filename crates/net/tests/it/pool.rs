//! Connection reuse, fallback between addresses, and the address guard.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use toolhub_net::{AddressPolicy, BoxFuture, Bytes, DialError, Origin, PoolOptions, Pools, Request, Resolve};

use super::server::{Server, ok_response};

/// Resolves every host to these addresses.
struct FixedResolver(Vec<IpAddr>);

impl Resolve for FixedResolver {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async { Ok(self.0.clone()) })
    }
}

fn request() -> Request<Bytes> {
    Request::builder().uri("/").body(Bytes::new()).unwrap()
}

fn origin(port: u16) -> Origin {
    Origin { https: false, host: "service.example".into(), port }
}

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_one_after_the_other_use_one_connection() {
    let server = Server::start(|_, _| Some(ok_response("some body"))).await;
    let pool = Pools::with_resolver(FixedResolver(vec![LOCALHOST]))
        .pool(&origin(server.address.port()), &PoolOptions::default());
    for _ in 0..500 {
        let mut response = pool.lease().await.unwrap().send(request(), Duration::MAX).await.unwrap();
        while response.chunk().await.unwrap().is_some() {}
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn where_one_address_of_a_host_refuses_the_next_one_is_tried() {
    let server = Server::start(|_, _| Some(ok_response(""))).await;
    // No server listens on this address.
    let refusing = IpAddr::from([127, 0, 0, 2]);
    let pools = Pools::with_resolver(FixedResolver(vec![refusing, LOCALHOST]));
    let options = PoolOptions { connect_timeout: Duration::from_secs(60), ..PoolOptions::default() };
    let pool = pools.pool(&origin(server.address.port()), &options);
    let dialled = tokio::time::timeout(Duration::from_secs(20), pool.dial()).await;
    assert!(dialled.is_ok_and(|dialled| dialled.is_ok()));
}

#[tokio::test]
async fn only_public_addresses_are_connected_to_unless_the_host_is_named() {
    let server = Server::start(|_, _| Some(ok_response(""))).await;
    let pools = Pools::with_resolver(FixedResolver(vec![LOCALHOST]));
    let dial = async |hosts: &[&str]| {
        let address_policy = AddressPolicy::PublicOrHosts(hosts.iter().map(|host| (*host).to_owned()).collect());
        let options = PoolOptions { address_policy, ..PoolOptions::default() };
        let lease = pools.pool(&origin(server.address.port()), &options).dial().await?;
        Ok(lease.send(request(), Duration::MAX).await.unwrap().status.as_u16())
    };
    assert!(
        matches!(dial(&[]).await, Err(DialError::Forbidden(reason)) if reason.contains("127.0.0.1, a loopback address"))
    );
    assert_eq!(dial(&["service.example"]).await, Ok(200));
    assert_eq!(server.connections(), 1);
}

#[test]
fn idle_connections_are_closed_although_the_task_that_closed_them_was_aborted() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server_runtime = runtime();
    let server = server_runtime.block_on(Server::start(|_, _| Some(ok_response("some body"))));
    let options = PoolOptions { idle_timeout: Some(Duration::from_millis(20)), ..PoolOptions::default() };
    let pool = Pools::with_resolver(FixedResolver(vec![LOCALHOST])).pool(&origin(server.address.port()), &options);
    let send = async || {
        let mut response = pool.lease().await.unwrap().send(request(), Duration::MAX).await.unwrap();
        while response.chunk().await.unwrap().is_some() {}
    };
    // The end of a runtime aborts its tasks.
    runtime().block_on(send());
    runtime().block_on(async {
        send().await;
        let all_closed = async {
            while server.closed_connections() < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), all_closed).await.expect("the idle connection is closed");
    });
    assert_eq!(server.connections(), 2);
}

//! The store fails: its server is killed, or the network between a node and the server fails.

use toolhub_testkit::{NetworkFault, RedisServer, TcpProxy, soak};

use super::{NODES, Random, checks::Checker, clients::Round, nodes::Nodes, run_round};

#[test]
fn a_redis_server_that_is_killed_and_restarted_costs_nothing_that_was_acknowledged() {
    let mut redis = RedisServer::start();
    let nodes = Nodes::start(&[redis.url()], NODES);
    let (mut random, mut checker) = (Random::new(), Checker::default());
    for number in 0..soak(3, 50) {
        let round = Round::new(number);
        let run_id = |redis: &RedisServer| {
            redis.cli(&["INFO", "server"]).lines().find(|line| line.starts_with("run_id")).map(str::to_owned)
        };
        let before = run_id(&redis);
        run_round(&nodes, &round, || {
            random.pause(100, 500);
            redis.kill();
            random.pause(1, 1_000);
            redis.restart();
            random.pause(200, 500);
        });
        assert!(before.is_some() && run_id(&redis) != before, "another process serves Redis");
        nodes.wait_until_all_calls_ended(0..NODES);
        checker.check(&nodes, round);
    }
    checker.report("killed Redis");
}

#[test]
fn a_cut_cable_between_a_node_and_redis_costs_time_only() {
    let redis = RedisServer::start();
    let proxies: Vec<TcpProxy> = (0..NODES).map(|_| TcpProxy::start(redis.port())).collect();
    let urls: Vec<String> = proxies.iter().map(|proxy| format!("redis://127.0.0.1:{}/0", proxy.port())).collect();
    let nodes = Nodes::start(&urls, NODES);
    let (mut random, mut checker) = (Random::new(), Checker::default());
    let faults = [NetworkFault::AnswersLost, NetworkFault::Cut, NetworkFault::RequestsLost];
    for number in 0..soak(3, 200) {
        let (round, victim, fault) = (Round::new(number), number % NODES, faults[number % faults.len()]);
        run_round(&nodes, &round, || {
            random.pause(100, 500);
            round.start_slow_call(&nodes, victim);
            proxies[victim].fail(fault);
            // Every other time, the other nodes take the node for dead.
            let is_long = number % 2 == 1;
            random.pause(if is_long { 3_000 } else { 100 }, if is_long { 4_000 } else { 1_000 });
            proxies[victim].repair();
            random.pause(100, 300);
        });
        nodes.wait_until_all_calls_ended(0..NODES);
        checker.check(&nodes, round);
    }
    checker.report("cut cables");
}

//! The primary of a Redis with replicas is killed. What its replica did not have is lost, and must be named.

use toolhub_testkit::{RedisCluster, RedisSentinel, RedisServer, soak};

use super::{NODES, Random, checks::Checker, clients::Round, losses::LossListener, nodes::Nodes, run_round};

/// Servers that take over from each other.
trait Redundant {
    fn url(&self) -> String;
    /// The server that a round kills.
    fn primary(&self, round: usize) -> &RedisServer;
    fn fail_over(&mut self, round: usize);
    fn restore(&mut self, round: usize);
}

impl Redundant for RedisSentinel {
    fn url(&self) -> String {
        self.url()
    }

    fn primary(&self, _: usize) -> &RedisServer {
        self.primary()
    }

    fn fail_over(&mut self, _: usize) {
        self.fail_over();
    }

    fn restore(&mut self, _: usize) {
        self.restore();
    }
}

/// The servers of a Cluster fail in turn.
impl Redundant for RedisCluster {
    fn url(&self) -> String {
        self.url()
    }

    fn primary(&self, round: usize) -> &RedisServer {
        self.primary(round % 3)
    }

    fn fail_over(&mut self, round: usize) {
        self.fail_over(round % 3);
    }

    fn restore(&mut self, round: usize) {
        self.restore(round % 3);
    }
}

fn fail_over_under_load(mut servers: impl Redundant) {
    let nodes = Nodes::start(&[servers.url()], NODES);
    let losses = LossListener::default();
    (0..NODES).for_each(|node| losses.listen(nodes.port(node).expect("it is running")));
    let (mut random, mut checker) = (Random::new(), Checker::default());
    let mut killed = Vec::new();
    for number in 0..soak(3, 30) {
        if number > 0 {
            servers.restore(number - 1);
        }
        let round = Round::new(number);
        let before = servers.primary(number).port();
        run_round(&nodes, &round, || {
            random.pause(100, 400);
            if number % 2 == 0 {
                // Writes that the replica does not get are acknowledged.
                servers.primary(number).refuse_replicas();
                round.wait_for_more_outcomes(3);
            }
            servers.fail_over(number);
            random.pause(100, 300);
        });
        assert_ne!(servers.primary(number).port(), before, "another server has taken over");
        killed.push(before);
        nodes.wait_until_all_calls_ended(0..NODES);
        checker.check_with(&nodes, round, &losses);
    }
    checker.report("fail-overs");
    // In the first round, and each other one, commits were acknowledged that the replica did not have. On a Cluster, the third round kills the
    // server that has its first thread.
    losses.wait_for_some();
    eprintln!("killed {killed:?}, reported as lost: {:?}", losses.lock());
}

#[test]
fn what_a_fail_over_by_sentinel_loses_is_named_and_nothing_else_is_missing() {
    fail_over_under_load(RedisSentinel::start());
}

#[test]
fn what_a_fail_over_of_a_cluster_loses_is_named_and_nothing_else_is_missing() {
    fail_over_under_load(RedisCluster::start_with_replicas());
}

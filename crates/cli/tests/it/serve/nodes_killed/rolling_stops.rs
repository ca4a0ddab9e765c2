//! Nodes are stopped by SIGTERM and started again, one after the other, as in an upgrade.

use std::time::Duration;

use tokio::time::Instant;
use toolhub_testkit::{RedisServer, soak};

use super::{
    NODES, Random,
    checks::Checker,
    clients::{AnswerKind, Round},
    nodes::Nodes,
    run_round,
};

/// The default of `server.drain_timeout`.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn no_call_with_a_key_fails_while_one_node_after_the_other_is_stopped_and_started() {
    let redis = RedisServer::start();
    let nodes = Nodes::start(&[redis.url()], NODES);
    let (mut random, mut checker) = (Random::new(), Checker::default());
    for number in 0..soak(1, 20) {
        let round = Round::new(number);
        run_round(&nodes, &round, || {
            for node in 0..NODES {
                random.pause(100, 400);
                let started = Instant::now();
                assert_eq!(nodes.stop(node), Some(0));
                assert!(started.elapsed() < DRAIN_TIMEOUT, "{:?}", started.elapsed());
                random.pause(1, 200);
                nodes.restart(node);
            }
        });
        nodes.wait_until_all_calls_ended(0..NODES);
        for answer in round.answers() {
            let AnswerKind::Ended(outcome) = &answer.kind else { continue };
            assert_eq!(outcome["status"], "success", "{answer:#?}");
        }
        checker.check(&nodes, round);
    }
    checker.report("stopped nodes");
    assert_eq!(checker.interrupted, 0);
}

//! Nodes are stopped by SIGTERM and started again, one after the other, as in an upgrade.

use std::{thread, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;
use toolhub_testkit::{RedisServer, soak};

use super::{
    NODES, Random,
    checks::Checker,
    clients::{AnswerKind, Round},
    nodes::Nodes,
    run_round,
};
use crate::config::run_toolhub;

/// The default of `server.drain_timeout`.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Lets the program act as a release with another generation of record layouts.
const NEXT_RELEASE: (&str, &str) = ("TOOLHUB_NEXT_LAYOUTS", "1");

/// Stops each node under load, and starts it again by `restart`. No call with a key may fail.
fn stop_each(nodes: &Nodes, number: usize, random: &mut Random, checker: &mut Checker, restart: impl Fn(usize)) {
    let round = Round::new(number);
    run_round(nodes, &round, || {
        for node in 0..NODES {
            random.pause(100, 400);
            let started = Instant::now();
            assert_eq!(nodes.stop(node), Some(0));
            assert!(started.elapsed() < DRAIN_TIMEOUT, "{:?}", started.elapsed());
            random.pause(1, 200);
            restart(node);
        }
    });
    nodes.wait_until_all_calls_ended(0..NODES);
    for answer in round.answers() {
        let AnswerKind::Ended(outcome) = &answer.kind else { continue };
        assert_eq!(outcome["status"], "success", "{answer:#?}");
    }
    checker.check(nodes, round);
}

#[test]
fn no_call_with_a_key_fails_while_one_node_after_the_other_is_stopped_and_started() {
    let redis = RedisServer::start();
    let nodes = Nodes::start(&[redis.url()], NODES);
    let (mut random, mut checker) = (Random::new(), Checker::default());
    for number in 0..soak(1, 20) {
        stop_each(&nodes, number, &mut random, &mut checker, |node| nodes.restart(node));
    }
    checker.report("stopped nodes");
    assert_eq!(checker.interrupted, 0);
}

#[test]
fn nodes_are_upgraded_one_after_the_other_to_a_release_with_newer_layouts_and_no_older_one_starts_then() {
    let redis = RedisServer::start();
    let nodes = Nodes::start(&[redis.url()], NODES);
    let (mut random, mut checker) = (Random::new(), Checker::default());
    stop_each(&nodes, 0, &mut random, &mut checker, |node| {
        nodes.restart_with(node, &[NEXT_RELEASE]);
        if node < NODES - 1 {
            let seen = nodes.list(NODES - 1, "/api/v1/nodes?limit=500");
            assert!(seen.iter().any(|node| node["layouts"]["read"] == 2), "{seen:#?}");
            assert!(seen.iter().all(|node| node["layouts"]["written"] == 1), "the observer is older: {seen:#?}");
        }
    });
    checker.report("upgraded nodes");
    assert_eq!(checker.interrupted, 0);
    let started = Instant::now();
    while own_layouts(&nodes, 0) != json!({"read": 2, "written": 2}) {
        assert!(started.elapsed() < Duration::from_secs(60), "{}", own_layouts(&nodes, 0));
        thread::park_timeout(Duration::from_millis(50));
    }

    let check_refused = || {
        let older = run_toolhub(nodes.folder(), &["serve", "--port", "0"], &nodes.variables(0));
        assert_eq!(older.code, 4, "{}", older.err);
        assert!(older.err.contains("layouts of generation 2"), "{}", older.err);
    };
    check_refused();
    for node in 0..NODES {
        assert_eq!(nodes.stop(node), Some(0));
    }
    check_refused();
    nodes.restart_with(0, &[NEXT_RELEASE]);
    assert_eq!(own_layouts(&nodes, 0), json!({"read": 2, "written": 2}));
}

/// Which layouts a node reads and writes, as it says itself.
fn own_layouts(nodes: &Nodes, node: usize) -> Value {
    let all = nodes.list(node, "/api/v1/nodes?limit=500");
    all.into_iter().find(|node| node["isSelf"] == true).expect("it lists itself")["layouts"].clone()
}

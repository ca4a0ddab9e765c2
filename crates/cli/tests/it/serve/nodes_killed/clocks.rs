//! The clock of one node's machine is wrong.

use std::process::Command;

use toolhub_testkit::{RedisServer, TempFolder, soak};

use super::{NODES, Random, checks::Checker, clients::Round, nodes::Nodes, run_round};
use crate::serve::{
    HttpConnection,
    clock_jump::{YEAR, compile_preloaded},
};

#[test]
fn a_node_whose_clock_is_an_hour_or_a_year_off_is_a_node_like_the_others() {
    let (redis, folder) = (RedisServer::start(), TempFolder::new());
    let library = compile_preloaded(&folder);
    let file = |node: usize| folder.join(format!("offset-{node}")).display().to_string();
    let variables = |node: usize| {
        let of_clock = [("LD_PRELOAD", library.clone()), ("CLOCK_OFFSET_FILE", file(node))];
        [("TOOLHUB__STORE__URL", redis.url())].into_iter().chain(of_clock).collect()
    };
    // One node starts with a wrong clock.
    folder.write("offset-0", &YEAR.to_string());
    let nodes = Nodes::start_each((0..NODES).map(variables).collect(), "");
    let (mut random, mut checker) = (Random::new(), Checker::default());
    let offsets = [-3_600, YEAR, 3_600, -YEAR];
    for number in 0..soak(2, 24) {
        let (round, victim) = (Round::new(number), (number + 1) % NODES);
        run_round(&nodes, &round, || {
            random.pause(100, 300);
            folder.write(&format!("offset-{victim}"), &offsets[number % offsets.len()].to_string());
            random.pause(100, 500);
            round.start_slow_call(&nodes, victim);
            nodes.kill(victim);
            nodes.restart(victim);
            random.pause(100, 300);
        });
        nodes.wait_until_all_calls_ended(0..NODES);
        assert_clock_is_wrong(&nodes, victim);
        checker.check(&nodes, round);
    }
    checker.report("wrong clocks");
    assert!(checker.interrupted > 0, "no call was open when its node was killed");
}

/// The time of a node's responses is that of its machine. Offsets are at least an hour.
#[track_caller]
fn assert_clock_is_wrong(nodes: &Nodes, node: usize) {
    let hour = || {
        let output = Command::new("date").args(["-u", "+%a, %d %b %Y %H:"]).env("LC_ALL", "C").output();
        String::from_utf8(output.expect("`date` can be run").stdout).expect("UTF-8").trim().to_owned()
    };
    let before = hour();
    let response = HttpConnection::connect(nodes.port(node).expect("it is running")).send("GET /livez", "", "");
    let date = response.header("date").expect("a response has a date").to_owned();
    let is_right = [before, hour()].iter().all(|hour| date.starts_with(hour.as_str()));
    assert!(!is_right, "the clock of node {node} is right: {date}");
}

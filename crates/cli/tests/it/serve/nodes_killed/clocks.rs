//! The clock of one node's machine is wrong.

use toolhub_testkit::{RedisServer, TempFolder, soak};

use super::{NODES, Random, checks::Checker, clients::Round, nodes::Nodes, run_round};
use crate::serve::clock_jump::{YEAR, compile_preloaded};

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
        checker.check(&nodes, round);
    }
    checker.report("wrong clocks");
    assert!(checker.interrupted > 0, "no call was open when its node was killed");
}

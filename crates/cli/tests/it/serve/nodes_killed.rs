//! Nodes that share one Redis, under load, while nodes, servers and networks fail.
//!
//! In each round clients make calls on all nodes, with and without idempotency keys, and write down each answer; meanwhile a fault
//! happens. Afterwards every living node must know each acknowledged call and count, no effect may have happened twice under one key,
//! and every call must have ended, once.

mod checks;
mod clients;
mod clocks;
mod fail_overs;
mod losses;
mod nodes;
mod rolling_stops;
mod shared_limits;
mod store_faults;

use std::{thread, time::Duration};

use tokio::time::Instant;
use toolhub_testkit::{RedisServer, is_soak, soak};

use checks::Checker;
use clients::{Round, use_nodes};
use nodes::Nodes;

/// How many nodes there are, and clients: each client prefers another node.
const NODES: usize = 3;

/// The `node_timeout` of the nodes.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);

/// Random numbers; the same in each normal run, others in each soak run.
struct Random(u64);

impl Random {
    fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self(if is_soak() { RandomState::new().hash_one(0) | 1 } else { 0x2545_f491_4f6c_dd1d })
    }

    /// A number below this limit.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn pause(&mut self, from: u64, to: u64) {
        thread::park_timeout(Duration::from_millis(from + self.below(to - from)));
    }
}

/// The longest time from a fault to the end of the calls that were open then.
#[derive(Default)]
struct ClosingTimes(Vec<Duration>);

impl ClosingTimes {
    /// Prints the times, and checks them: strictly in a soak run, which has the machine for itself.
    #[track_caller]
    fn report(mut self) {
        self.0.sort();
        let (median, longest) = (self.0[self.0.len() / 2], self.0[self.0.len() - 1]);
        eprintln!("closed within {median:?} (median), {longest:?} (longest)");
        let allowed = NODE_TIMEOUT + soak(Duration::from_secs(40), Duration::from_secs(5));
        assert!(longest <= allowed, "calls were open for {longest:?}, which is more than {allowed:?}");
    }
}

/// Ends the clients of a round, also when a test fails, which would otherwise wait for them.
struct StopOnDrop<'a>(&'a Round);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Lets clients use the nodes while `fault` runs, and returns when they have their answers.
fn run_round<T>(nodes: &Nodes, round: &Round, fault: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        for client in 0..nodes.len() {
            scope.spawn(move || use_nodes(nodes, client, round));
        }
        let _stop = StopOnDrop(round);
        fault()
    })
}

#[test]
fn calls_of_killed_nodes_are_closed_once_and_nothing_acknowledged_is_lost() {
    let redis = RedisServer::start();
    let nodes = Nodes::start(&[redis.url()], NODES);
    let (mut random, mut checker, mut times) = (Random::new(), Checker::default(), ClosingTimes::default());
    for number in 0..soak(3, 300) {
        let (round, victim) = (Round::new(number), number % NODES);
        let killed_at = run_round(&nodes, &round, || {
            random.pause(100, 500);
            round.start_slow_call(&nodes, victim);
            let killed_at = Instant::now();
            nodes.kill(victim);
            random.pause(50, 400);
            nodes.restart(victim);
            killed_at
        });
        nodes.wait_until_all_calls_ended(0..NODES);
        times.0.push(killed_at.elapsed());
        checker.check(&nodes, round);
    }
    assert!(checker.interrupted > 0, "no call was open when its node was killed");
    checker.report("killed nodes");
    times.report();
}

#[test]
fn a_node_that_was_frozen_until_others_closed_its_calls_changes_nothing_when_it_wakes_up() {
    let redis = RedisServer::start();
    let nodes = Nodes::start(&[redis.url()], NODES);
    let (mut random, mut checker, mut times) = (Random::new(), Checker::default(), ClosingTimes::default());
    for number in 0..soak(3, 100) {
        let (round, victim) = (Round::new(number), number % NODES);
        run_round(&nodes, &round, || {
            random.pause(100, 500);
            round.start_slow_call(&nodes, victim);
            let frozen_at = Instant::now();
            nodes.signal(victim, "STOP");
            random.pause(50, 400);
            round.stop();
            nodes.wait_until_all_calls_ended((0..NODES).filter(|node| *node != victim));
            times.0.push(frozen_at.elapsed());
            nodes.signal(victim, "CONT");
        });
        nodes.wait_until_all_calls_ended(0..NODES);
        checker.check(&nodes, round);
    }
    assert!(checker.interrupted > 0, "no call was open when its node was frozen");
    checker.report("frozen nodes");
    times.report();
}

//! What holds for all nodes together under many concurrent callers: the single probe of a failed tool, and rate limits.

use std::{
    sync::{Barrier, Mutex, PoisonError},
    thread,
    time::Duration,
};

use tokio::time::Instant;
use toolhub_testkit::{RedisServer, is_soak, soak};

use super::{NODES, nodes::Nodes};
use crate::serve::{HttpConnection, tools::wait_until};

const CALLERS: usize = 500;
const COOL_DOWN: Duration = Duration::from_secs(2);
/// Repeated cool-downs are shortened by up to a fifth.
const SHORTEST_COOL_DOWN: Duration = Duration::from_millis(1_600);

/// Writes the time of each execution, in nanoseconds, and fails.
const BROKEN: &str = r#"
[status]
failure_duration = "2s"
max_failure_duration = "2s"
[tools.broken]
command = "sh"
args = ["-c", 'cat >/dev/null; date +%s%N >>executions; sleep 0.2; exit 1']
parameters = { type = "object" }
confirm = false
"#;

#[test]
fn of_500_callers_on_three_nodes_one_probes_at_the_end_of_each_cool_down() {
    let redis = RedisServer::start();
    let nodes = Nodes::start_with(&[redis.url()], NODES, BROKEN);
    let call = |connection: &mut HttpConnection| {
        connection.send("POST /api/v1/tools/broken/calls", "", r#"{"arguments": {}}"#)
    };
    let port = |at: usize| nodes.port(at % NODES).expect("it is running");
    let executions = || -> Vec<u64> {
        let text = std::fs::read_to_string(nodes.folder().join("executions")).unwrap_or_default();
        text.lines().map(|line| line.parse().expect("a number")).collect()
    };
    let status = |node: usize| nodes.get(node, "/api/v1/tools/broken").expect("it is known")["status"].clone();
    for at in 0..3 {
        let failed = call(&mut HttpConnection::connect(port(at)));
        assert_eq!((failed.status, &failed.json()["status"]), (200, &"error".into()), "{}", failed.text);
    }
    let rounds = soak(3, 50);
    for round in 0..rounds {
        wait_until(|| (0..NODES).all(|node| status(node) == "failed"));
        let mut connections: Vec<_> = (0..CALLERS).map(|at| HttpConnection::connect(port(at))).collect();
        let (ready, before) = (Barrier::new(CALLERS + 1), executions().len());
        let ran = thread::scope(|scope| {
            let callers = connections.iter_mut().map(|connection| {
                let ready = &ready;
                scope.spawn(move || {
                    ready.wait();
                    call(connection)
                })
            });
            let callers: Vec<_> = callers.collect();
            wait_until(|| (0..NODES).all(|node| status(node) == "available"));
            ready.wait();
            let answers = callers.into_iter().map(|caller| caller.join().expect("it got an answer"));
            answers.filter(|answer| answer.status == 200).count()
        });
        let probes = executions().len() - before;
        assert!(probes >= 1 && ran == probes, "round {round}: {ran} of {probes} probes were answered");
    }
    let executions = executions();
    // Callers that were too slow for their round may have probed at the end of the next cool-down; no two did in one.
    for times in executions[2..].windows(2) {
        let between = Duration::from_nanos(times[1] - times[0]);
        assert!(between >= SHORTEST_COOL_DOWN, "two probes within {between:?}, of {COOL_DOWN:?}");
    }
    eprintln!("probes: {} in {rounds} rounds", executions.len() - 3);
}

const RATE: f64 = 100.0;
/// Unless configured, a limit lets as many calls pass at once as in a period.
const BURST: f64 = 100.0;
const LIMITED: &str = r#"
[tools.limited]
builtin = "calculator"
rate_limit = { requests = 100, per = "1s" }
"#;

#[test]
fn a_rate_limit_over_three_nodes_is_never_exceeded_and_used_up() {
    let redis = RedisServer::start();
    let nodes = Nodes::start_with(&[redis.url()], NODES, LIMITED);
    let time = soak(Duration::from_secs(3), Duration::from_secs(10));
    let passed = Mutex::new(Vec::new());
    let started = Instant::now();
    thread::scope(|scope| {
        for caller in 0..2 * NODES {
            let (nodes, passed) = (&nodes, &passed);
            scope.spawn(move || {
                let mut connection = HttpConnection::connect(nodes.port(caller % NODES).expect("it is running"));
                while started.elapsed() < time {
                    let body = r#"{"arguments": {"expression": "1+1"}}"#;
                    let sent = started.elapsed().as_secs_f64();
                    let answer = connection.send("POST /api/v1/tools/limited/calls", "", body);
                    let received = started.elapsed().as_secs_f64();
                    match answer.status {
                        200 => passed.lock().unwrap_or_else(PoisonError::into_inner).push((sent, received)),
                        429 => thread::park_timeout(Duration::from_millis(2)),
                        status => panic!("{status}: {}", answer.text),
                    }
                }
            });
        }
    });
    let mut passed = passed.into_inner().unwrap_or_else(PoisonError::into_inner);
    passed.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    for &(from, _) in &passed {
        // Calls that were surely admitted after `from` and before they were answered.
        let after = passed.iter().filter(|(sent, _)| *sent >= from).map(|(_, received)| received);
        for (count, until) in (1_u32..).zip(after) {
            let allowed = BURST + RATE * (until - from) + 1.0;
            assert!(f64::from(count) <= allowed, "{count} calls passed from {from:.3} s to {until:.3} s");
        }
    }
    let share = (passed.len() as f64 - BURST) / (RATE * time.as_secs_f64());
    eprintln!("rate limit: {:.1} % used", 100.0 * share);
    assert!(!is_soak() || share >= 0.95, "{:.1} % of the limit was used", 100.0 * share);
}

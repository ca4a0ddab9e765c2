//! Compares the MCP endpoint of a hub with other gateways in front of the same server: a bare proxy made with the SDK, and other programs if
//! `bench/run` has installed them.
//!
//! In: nothing. Out: a table of calls per second and 99th percentile latency of clients over HTTP, by the transport of the server behind.

mod bare_proxy;
mod gateway;
mod hub;
mod load;

use std::time::Duration;

use gateway::{Gateway, Kind};
use load::{Load, Measurement};

use crate::{
    CONCURRENCY, median,
    server::{Server, Transport},
};

pub(crate) use gateway::run_if_requested;

/// A gateway compared with the hub: what the rate of the hub must be at least, and whether its p99 must be lower.
struct Target {
    kind: Kind,
    min_rate_ratio: f64,
    has_p99_target: bool,
    /// Whether the hub records the calls.
    records: bool,
}

/// The proxies record nothing, so one of them is also compared with a hub that does not.
const TARGETS: [Target; 5] = [
    Target { kind: Kind::BareProxy { is_modern: false }, min_rate_ratio: 0.9, has_p99_target: false, records: true },
    Target { kind: Kind::BareProxy { is_modern: true }, min_rate_ratio: 0.9, has_p99_target: false, records: true },
    Target { kind: Kind::McpProxy, min_rate_ratio: 1.0, has_p99_target: true, records: true },
    Target { kind: Kind::McpProxy, min_rate_ratio: 1.0, has_p99_target: true, records: false },
    Target { kind: Kind::FastMcp, min_rate_ratio: 10.0, has_p99_target: false, records: true },
];

pub(crate) async fn print(rounds: usize, duration: Duration) {
    println!("\n| server behind | gateway | calls/s | hub: times this | target | p99 | hub: times this | target |");
    println!("|---|---|---|---|---|---|---|---|");
    for transport in [Transport::Stdio, Transport::Http] {
        for target in TARGETS.into_iter().filter(|target| target.kind.is_installed()) {
            compare(transport, &target, rounds, duration).await;
        }
    }
}

async fn compare(transport: Transport, target: &Target, rounds: usize, duration: Duration) {
    let server = Server::start(transport);
    let kinds = [target.kind, Kind::Hub { is_modern: target.kind.is_modern(), records: target.records }];
    let mut loads = Vec::new();
    for kind in kinds {
        let gateway = Gateway::start(kind, &server);
        loads.push(Load::new(gateway, CONCURRENCY).await);
    }
    let mut measured = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for (load, measured) in loads.iter_mut().zip(&mut measured) {
            let measurement = load.run(duration).await;
            // The first round is a warm-up.
            if round > 0 {
                measured.push(measurement);
            }
        }
    }
    report(transport, target, &kinds, &measured);
}

fn report(transport: Transport, target: &Target, kinds: &[Kind; 2], [peer, hub]: &[Vec<Measurement>; 2]) {
    let rate = |rounds: &[Measurement]| median(rounds.iter().map(|round| round.rate).collect());
    let p99 = |rounds: &[Measurement]| median(rounds.iter().map(|round| round.p99.as_secs_f64() * 1e3).collect());
    let rate_ratio = median(hub.iter().zip(peer).map(|(hub, peer)| hub.rate / peer.rate).collect());
    let p99_ratio =
        median(hub.iter().zip(peer).map(|(hub, peer)| hub.p99.as_secs_f64() / peer.p99.as_secs_f64()).collect());
    let verdict = |met: bool| if met { "met" } else { "MISSED" };
    let rate_target = format!("≥ {}, {}", target.min_rate_ratio, verdict(rate_ratio >= target.min_rate_ratio));
    let p99_target = match target.has_p99_target {
        true => format!("< 1, {}", verdict(p99_ratio < 1.0)),
        false => String::new(),
    };
    println!(
        "| {transport:?} | {} | {:.0} | {rate_ratio:.2} | {rate_target} | {:.2} ms | {p99_ratio:.2} | {p99_target} |",
        kinds[0].name(),
        rate(peer),
        p99(peer)
    );
    println!("| {transport:?} | {} | {:.0} | | | {:.2} ms | | |", kinds[1].name(), rate(hub), p99(hub));
}

//! Prints the numbers as JSON lines, then the ratios that matter beside their targets.

use serde_json::{Value, json};

use crate::stages::{EVERY_LIMIT, STAGES};

/// The numbers of the peers, as `bench/peers.py` wrote them.
pub(crate) fn read_peers(path: &str) -> Vec<(String, f64)> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {path}: {error}"));
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        Some((line["name"].as_str()?.to_owned(), line["ns_per_call"].as_f64()?))
    };
    text.lines().filter_map(line).collect()
}

/// `threads`: how many times the calls of one thread two make, on the bare path and on ours.
pub(crate) fn print(numbers: &[(String, f64)], threads: &[f64]) {
    for (name, nanos) in numbers {
        println!("{}", json!({"name": name, "ns_per_call": nanos.round()}));
    }
    let find = |part: &str| numbers.iter().find(|(name, _)| name.contains(part)).map(|(_, nanos)| *nanos);
    let (Some(bare), Some(ours), Some(many)) = (find("bare:"), find("read-only call"), find("100,001")) else {
        return;
    };
    println!("\n{:<58} {:>10}  target", "", "measured");
    print_row("µs over the bare path", (ours - bare) / 1000.0, "≤ 1.5", |x| x <= 1.5);
    print_row("times the bare path", ours / bare, "≤ 4", |x| x <= 4.0);
    let [bare_threads, our_threads] = threads else { return };
    // Two cores of a shared machine are rarely two whole ones: the bare path, which shares nothing, shows how much they are.
    print_row("calls of two threads over one, bare path", *bare_threads, "(what the machine gives)", |_| true);
    print_row("calls of two threads over one", *our_threads, "≥ 1.6", |x| x >= 1.6);
    print_row("cost among 100,001 tools over cost among 4", many / ours, "0.8–1.2", |x| (0.8..=1.2).contains(&x));
    print_stages(numbers);
    for (peer, target) in [("ToolManager", 10.0), ("StructuredTool.invoke", 100.0), ("StructuredTool.ainvoke", 100.0)] {
        if let Some(theirs) = find(peer) {
            print_row(&format!("{peer} over ours"), theirs / ours, &format!("≥ {target}"), |x| x >= target);
        }
    }
}

/// What each stage adds, and whether a call that passes all of them still meets the target.
fn print_stages(numbers: &[(String, f64)]) {
    let exactly = |wanted: &str| numbers.iter().find(|(name, _)| name == wanted).map(|(_, nanos)| *nanos);
    let (Some(bare), Some(plain), Some(every)) =
        (exactly("bare, beside the stages"), exactly(STAGES[0].0), exactly(EVERY_LIMIT))
    else {
        return;
    };
    print_row("µs over the bare path with every limit and rule", (every - bare) / 1000.0, "≤ 1.5", |x| x <= 1.5);
    print_row("times the bare path with every limit and rule", every / bare, "≤ 4", |x| x <= 4.0);
    for (what, _) in &STAGES[1..] {
        let Some(nanos) = exactly(what) else { continue };
        println!("  {what:<56} {:>+10.0}  ns beside a call without limits", nanos - plain);
    }
}

fn print_row(what: &str, measured: f64, target: &str, met: impl Fn(f64) -> bool) {
    println!("{what:<58} {measured:>10.2}  {target}  {}", if met(measured) { "met" } else { "MISSED" });
}

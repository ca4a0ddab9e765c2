//! Prints the numbers as JSON lines, then the ratios with their targets.

use serde_json::{Value, json};

use crate::stages::{EVERY_LIMIT, STAGES};

/// The name of the baseline that is measured together with the stages.
pub(crate) const STAGES_BASELINE: &str = "baseline of the stages";

/// Reads the results of `bench/peers.py`.
pub(crate) fn read_peers(path: &str) -> Vec<(String, f64)> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {path}: {error}"));
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        Some((line["name"].as_str()?.to_owned(), line["ns_per_call"].as_f64()?))
    };
    text.lines().filter_map(line).collect()
}

/// `speedups`: calls of two threads over calls of one, on the baseline and on the hub.
pub(crate) fn print(numbers: &[(String, f64)], speedups: &[f64]) {
    for (name, nanos) in numbers {
        println!("{}", json!({"name": name, "ns_per_call": nanos.round()}));
    }
    let find = |part: &str| numbers.iter().find(|(name, _)| name.contains(part)).map(|(_, nanos)| *nanos);
    let (Some(baseline), Some(hub), Some(many_tools)) = (find("baseline:"), find("read-only call"), find("100,001"))
    else {
        return;
    };
    println!("\n{:<58} {:>10}  target", "", "measured");
    print_row("µs over the baseline", (hub - baseline) / 1000.0, "≤ 1.5", |x| x <= 1.5);
    print_row("times the baseline", hub / baseline, "≤ 4", |x| x <= 4.0);
    let [baseline_speedup, hub_speedup] = speedups else { return };
    // Two cores of a shared machine are rarely two full ones. The baseline shares no data, so its speedup shows what the machine gives.
    print_row("calls of two threads over one, baseline", *baseline_speedup, "(limit of the machine)", |_| true);
    print_row("calls of two threads over one", *hub_speedup, "≥ 1.6", |x| x >= 1.6);
    print_row("time among 100,001 tools over time among 4", many_tools / hub, "0.8–1.2", |x| {
        (0.8..=1.2).contains(&x)
    });
    print_stages(numbers);
    for (peer, target) in [("ToolManager", 10.0), ("StructuredTool.invoke", 100.0), ("StructuredTool.ainvoke", 100.0)] {
        if let Some(nanos) = find(peer) {
            print_row(&format!("{peer} over toolhub"), nanos / hub, &format!("≥ {target}"), |x| x >= target);
        }
    }
}

/// The overhead of each stage, and whether a call with all limits and rules meets the target.
fn print_stages(numbers: &[(String, f64)]) {
    let find = |label: &str| numbers.iter().find(|(name, _)| name == label).map(|(_, nanos)| *nanos);
    let (Some(baseline), Some(plain), Some(every)) = (find(STAGES_BASELINE), find(STAGES[0].0), find(EVERY_LIMIT))
    else {
        return;
    };
    print_row("µs over the baseline with all limits and rules", (every - baseline) / 1000.0, "≤ 1.5", |x| x <= 1.5);
    print_row("times the baseline with all limits and rules", every / baseline, "≤ 4", |x| x <= 4.0);
    for (label, _) in &STAGES[1..] {
        let Some(nanos) = find(label) else { continue };
        println!("  {label:<56} {:>+10.0}  ns over a call without limits", nanos - plain);
    }
}

fn print_row(label: &str, measured: f64, target: &str, met: impl Fn(f64) -> bool) {
    println!("{label:<58} {measured:>10.2}  {target}  {}", if met(measured) { "met" } else { "MISSED" });
}

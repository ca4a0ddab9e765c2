//! Measures the dispatch overhead of a call, as ratios to a baseline in the same run.
//!
//! In: nothing, or a file with the results of the peer libraries. Out: JSON lines and a table of ratios with targets.
#![forbid(unsafe_code)]

mod measure;
mod paths;
mod stages;
mod table;

fn main() {
    let peers = std::env::args().nth(1).map(|path| table::read_peers(&path)).unwrap_or_default();
    let runtime = measure::runtime();
    let (small, large) = (runtime.block_on(paths::hub(1)), runtime.block_on(paths::hub(100_000)));

    // A subscriber that never reads: events are published, and the oldest are dropped.
    let subscribed = runtime.block_on(paths::hub(1));
    let _subscriber = subscribed.subscribe();

    let (many_threads, tenant, thread) = runtime.block_on(paths::hub_with_many_threads());

    let (staged, run) = (&runtime.block_on(stages::hub()), stages::new_run_id());
    let stage = |(name, tool): (&'static str, &'static str)| {
        let path: measure::TimedPath<'_> = Box::new(move || Box::pin(stages::call(staged, tool, run)));
        (name, path)
    };

    let mut numbers = measure::measure_interleaved(
        &runtime,
        &[
            ("baseline: dyn + JSON value", Box::new(|| Box::pin(paths::baseline_call()))),
            ("toolhub: read-only call", Box::new(|| Box::pin(paths::hub_text(&small)))),
            ("toolhub: read-only call, without JSON text", Box::new(|| Box::pin(paths::hub_value(&small)))),
            ("toolhub: read-only, among 100,001 tools", Box::new(|| Box::pin(paths::hub_text(&large)))),
            ("toolhub: read-only, with an event subscriber", Box::new(|| Box::pin(paths::hub_text(&subscribed)))),
            (
                "toolhub: available tools of a thread",
                Box::new(|| Box::pin(paths::list_available_tools(&many_threads, &tenant, &thread))),
            ),
            ("toolhub: with effects (own task, two records)", Box::new(|| Box::pin(paths::hub_effect(&small)))),
            ("toolhub: with effects and state", Box::new(|| Box::pin(paths::hub_state(&small)))),
        ],
    );
    let baseline: (&str, measure::TimedPath<'_>) =
        (table::STAGES_BASELINE, Box::new(|| Box::pin(paths::baseline_call())));
    let staged: Vec<_> = [baseline].into_iter().chain(stages::STAGES.map(stage)).collect();
    numbers.extend(measure::measure_interleaved(&runtime, &staged));
    numbers.extend(peers);
    let baseline = || paths::run_calls(paths::baseline_call);
    let hub = || paths::run_calls(|| paths::hub_text(&small));
    table::print(&numbers, &measure::two_thread_speedup(&[&baseline, &hub]));
}

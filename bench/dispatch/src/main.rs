//! What a call costs, as ratios measured side by side in one run.
//!
//! In: nothing, or a file with the peers' numbers of the same run. Out: JSON lines and a table of ratios with targets.
#![forbid(unsafe_code)]

mod measure;
mod paths;
mod stages;
mod table;

fn main() {
    let peers = std::env::args().nth(1).map(|path| table::read_peers(&path)).unwrap_or_default();
    let runtime = measure::runtime();
    let (small, large) = (runtime.block_on(paths::hub(1)), runtime.block_on(paths::hub(100_000)));

    // A listener that never listens: events are made and told, and the oldest forgotten.
    let heard = runtime.block_on(paths::hub(1));
    let _listener = heard.subscribe();

    let (crowd, tenant, thread) = runtime.block_on(paths::hub_with_many_threads());

    let (staged, run) = (&runtime.block_on(stages::hub()), stages::new_run_id());
    let stage = |(what, tool): (&'static str, &'static str)| {
        let path: measure::TimedPath<'_> = Box::new(move || Box::pin(stages::call(staged, tool, run)));
        (what, path)
    };

    let mut numbers = measure::measure_interleaved(
        &runtime,
        &[
            ("bare: dyn + JSON value", Box::new(|| Box::pin(paths::baseline_call()))),
            ("toolhub: read-only call", Box::new(|| Box::pin(paths::hub_text(&small)))),
            ("toolhub: the same, without JSON text", Box::new(|| Box::pin(paths::hub_value(&small)))),
            ("toolhub: read-only, among 100,001 tools", Box::new(|| Box::pin(paths::hub_text(&large)))),
            ("toolhub: read-only, with a listener to events", Box::new(|| Box::pin(paths::hub_text(&heard)))),
            (
                "toolhub: available tools of a thread",
                Box::new(|| Box::pin(paths::list_available_tools(&crowd, &tenant, &thread))),
            ),
            ("toolhub: with effects (own task, two records)", Box::new(|| Box::pin(paths::hub_effect(&small)))),
            ("toolhub: with effects and state", Box::new(|| Box::pin(paths::hub_state(&small)))),
        ],
    );
    let bare: (&str, measure::TimedPath<'_>) =
        ("bare, beside the stages", Box::new(|| Box::pin(paths::baseline_call())));
    let staged: Vec<_> = [bare].into_iter().chain(stages::STAGES.map(stage)).collect();
    numbers.extend(measure::measure_interleaved(&runtime, &staged));
    numbers.extend(peers);
    let bare = || paths::run_calls(paths::baseline_call);
    let ours = || paths::run_calls(|| paths::hub_text(&small));
    table::print(&numbers, &measure::two_thread_speedup(&[&bare, &ours]));
}

//! What each stage of a call costs: the same tool, each time with one more thing to be asked.

use std::{hint::black_box, time::Duration};

use toolhub::{Hook, Policy, RateLimit, Rule, RunLimits, clock::Timestamp, ids::RunId, prelude::*};

use crate::paths::{ARGUMENTS, add, parse_json};

/// A hook that lets everything pass.
struct NoopHook;
impl Hook for NoopHook {}

/// The stages that are timed: what the table says, and the tool that has it.
pub(crate) const STAGES: [(&str, &str); 11] = [
    ("no limit at all", "plain"),
    ("in a thread", "in_thread"),
    ("in a run, which may not go in circles", "in_run"),
    ("a rate limit", "rate"),
    ("a rate limit for each thread", "thread_rate"),
    ("slots of the tool and of the hub", "slots"),
    ("two rules, one looks at an argument", "rules"),
    ("a hook that passes", "hook"),
    ("a kept answer instead of the tool", "kept"),
    ("every limit and rule", "limits"),
    ("every limit and rule, a hook, a thread, a run", "all"),
];

/// The path whose cost has a target.
pub(crate) const EVERY_LIMIT: &str = "every limit and rule";

/// A hub in which every stage can be passed alone.
pub(crate) async fn hub() -> ToolHub {
    let plenty = || RateLimit::per_second(1_000_000_000);
    let tool = |name: &str| tool(name, add).read_only();
    ToolHub::builder()
        .tools(["plain", "in_thread", "in_run"].map(tool))
        .tool(tool("rate").rate_limit(plenty()))
        .tool(tool("thread_rate").rate_limit(plenty().each_thread()))
        .tool(tool("slots").max_concurrency(1_000))
        .tool(tool("rules"))
        .tool(tool("hook"))
        .tool(tool("kept").cache(Duration::from_secs(3600)))
        .tool(tool("limits").rate_limit(plenty()).max_concurrency(1_000))
        .tool(tool("all").rate_limit(plenty()).rate_limit(plenty().each_thread()).max_concurrency(1_000))
        .policy("*l*", Policy { attempt_timeout: Some(Duration::from_secs(5)), ..Policy::default() })
        .rule(Rule::allow("rules"))
        .rule(Rule::deny("rules").when("/a", "^9"))
        .rule(Rule::allow("l*"))
        .rule(Rule::deny("l*").when("/a", "^9"))
        .rule(Rule::allow("all"))
        .rule(Rule::deny("all").when("/a", "^9"))
        .hook("hook", NoopHook)
        .hook("all", NoopHook)
        .run_limits(RunLimits { same_call: u32::MAX, calls: u32::MAX })
        .build()
        .await
        .expect("the tools are in order")
}

/// One call of a tool of that hub.
pub(crate) async fn call(hub: &ToolHub, tool: &'static str, run: RunId) {
    let mut request = hub.call(tool, parse_json(black_box(ARGUMENTS)));
    if tool.contains("thread") || tool == "all" {
        request = request.thread("bench");
    }
    if tool == "in_run" || tool == "all" {
        request = request.run(run);
    }
    let outcome = request.await;
    assert!(outcome.is_success(), "{outcome:?}");
    black_box(outcome.output.to_string());
}

/// A run to call in.
pub(crate) fn new_run_id() -> RunId {
    RunId::mint(Timestamp::from_millis(0))
}

//! The overhead of each stage of a call: the same tool, each time with one feature enabled.

use std::{hint::black_box, time::Duration};

use toolhub::{Hook, Policy, RateLimit, Rule, RunLimits, clock::Timestamp, ids::RunId, prelude::*};

use crate::paths::{ARGUMENTS, add, parse_json};

/// A hook that does nothing.
struct NoopHook;
impl Hook for NoopHook {}

/// The timed stages: the label in the table, and the tool that uses it.
pub(crate) const STAGES: [(&str, &str); 11] = [
    ("no limits", "plain"),
    ("in a thread", "in_thread"),
    ("in an agent run (runaway guard)", "in_run"),
    ("rate limit", "rate"),
    ("rate limit per thread", "thread_rate"),
    ("concurrency limits of tool and hub", "slots"),
    ("two rules, one matches an argument", "rules"),
    ("a no-op hook", "hook"),
    ("cached result", "cached"),
    (EVERY_LIMIT, "limits"),
    ("all limits and rules, a hook, a thread, a run", "all"),
];

/// The path whose cost has a target.
pub(crate) const EVERY_LIMIT: &str = "all limits and rules";

/// A hub with one tool per stage.
pub(crate) async fn hub() -> ToolHub {
    let high_rate = || RateLimit::per_second(1_000_000_000);
    let tool = |name: &str| tool(name, add).read_only();
    ToolHub::builder()
        .tools(["plain", "in_thread", "in_run"].map(tool))
        .tool(tool("rate").rate_limit(high_rate()))
        .tool(tool("thread_rate").rate_limit(high_rate().each_thread()))
        .tool(tool("slots").max_concurrency(1_000))
        .tool(tool("rules"))
        .tool(tool("hook"))
        .tool(tool("cached").cache(Duration::from_secs(3600)))
        .tool(tool("limits").rate_limit(high_rate()).max_concurrency(1_000))
        .tool(tool("all").rate_limit(high_rate()).rate_limit(high_rate().each_thread()).max_concurrency(1_000))
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

/// One call of a tool of [`hub`].
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

/// The agent run to call in.
pub(crate) fn new_run_id() -> RunId {
    RunId::mint(Timestamp::from_millis(0))
}

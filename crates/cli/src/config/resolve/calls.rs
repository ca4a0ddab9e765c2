//! What holds for calls: `[defaults]`, `[[limits]]` and `[[policy]]`, in the words of core.

use std::time::Duration;

use toolhub::{AnnotationMatch, Decision, Glob, OnExcess, Policy, RateLimit, RateScope, Retry, Rule};

use super::{
    super::{
        raw::{self, Backoff, Calls, Decided, RateLimits, Raw},
        tree::Path,
    },
    Desk, Policies, count,
};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

pub(super) fn resolve(raw: &Raw, desk: &mut Desk<'_>) -> Policies {
    let mut limits = Vec::with_capacity(raw.limits.len());
    for (place, limit) in raw.limits.iter().enumerate() {
        let at = Path::of(["limits"]).place(place);
        about_a_tool(&at.key("tool"), &limit.tool, &raw.tools, desk);
        limits.push((limit.tool.clone(), policy(&limit.calls, &at, desk)));
    }
    let mut rules = Vec::with_capacity(raw.policy.len());
    for (place, said) in raw.policy.iter().enumerate() {
        let at = Path::of(["policy"]).place(place);
        about_a_tool(&at.key("tool"), &said.tool, &raw.tools, desk);
        rules.push(rule(said, &at, desk));
    }
    Policies { defaults: policy(&raw.defaults, &Path::of(["defaults"]), desk), limits, rules }
}

/// A name without a glob is a name of a tool; misspelled, it would silently guard nothing.
fn about_a_tool(path: &Path, glob: &str, tools: &std::collections::BTreeMap<String, raw::Tool>, desk: &mut Desk<'_>) {
    if glob.contains(['*', '?']) || tools.contains_key(glob) {
        return;
    }
    let close = super::super::closest::closest(glob, tools.keys().map(String::as_str));
    let help = close.map_or_else(
        || "name a tool of this config, or use a glob such as \"*\"".into(),
        |name| format!("did you mean {name:?}?"),
    );
    desk.wrong(path, format!("there is no tool named `{glob}`"), help);
}

/// What was said about calls, in the words of core.
pub(super) fn policy(said: &Calls, at: &Path, desk: &mut Desk<'_>) -> Policy {
    if let (Some(timeout), Some(attempt)) = (said.timeout, said.attempt_timeout)
        && attempt.0 > timeout.0
    {
        let help = "make it shorter than `timeout`, which covers all attempts";
        desk.wrong(&at.key("attempt_timeout"), "one attempt may take longer than the whole call", help);
    }
    let rate_limits = said.rate_limit.as_ref().map(|limits| match limits {
        RateLimits::One(one) => vec![rate(one, &at.key("rate_limit"), desk)],
        RateLimits::Many(many) => {
            let each = many.iter().enumerate();
            each.map(|(place, one)| rate(one, &at.key("rate_limit").place(place), desk)).collect()
        }
    });
    Policy {
        timeout: said.timeout.map(|time| time.0),
        attempt_timeout: said.attempt_timeout.map(|time| time.0),
        idle_timeout: said.idle_timeout.map(|time| time.0),
        text_limit: said.text_limit.map(count),
        output_limit: said.output_limit.map(|size| usize::try_from(size.0).unwrap_or(usize::MAX)),
        retry: said.retry.as_ref().map(|said| retry(said, &at.key("retry"), desk)),
        rate_limits,
        max_concurrency: said.max_concurrency.map(count),
        queue_timeout: said.queue_timeout.map(|time| time.0),
        cache: said.cache.as_ref().map(|cache| cache.ttl.0),
        parallel_safe: said.parallel_safe,
        confirm: said.confirm,
        approval_timeout: said.approval_timeout.map(|time| time.0),
    }
}

fn retry(said: &raw::Retry, at: &Path, desk: &mut Desk<'_>) -> Retry {
    // A factor as usual may have been written by `config show`.
    if said.backoff == Backoff::Fixed && (said.factor - raw::Retry::default().factor).abs() > f64::EPSILON {
        let help = "remove it, or use backoff = \"exponential\"";
        desk.wrong(&at.key("factor"), "`factor` does nothing with backoff = \"fixed\"", help);
    }
    if said.max.0 < said.initial.0 {
        desk.wrong(&at.key("max"), "`max` is shorter than `initial`", "make it at least as long as the first wait");
    }
    Retry {
        attempts: said.attempts,
        first: said.initial.0,
        factor: if said.backoff == Backoff::Fixed { 1.0 } else { said.factor },
        longest: said.max.0,
        jitter: said.jitter,
    }
}

fn rate(said: &raw::RateLimit, at: &Path, desk: &mut Desk<'_>) -> RateLimit {
    if said.per.0 > YEAR {
        desk.wrong(&at.key("per"), "a period is at most a year", "use at most \"365d\"");
    }
    RateLimit {
        requests: said.requests,
        per: said.per.0,
        burst: said.burst,
        scope: match said.scope {
            raw::RateScope::Tool => RateScope::Tool,
            raw::RateScope::Thread => RateScope::Thread,
            raw::RateScope::Key => RateScope::Caller,
        },
        on_excess: said.wait.map_or(OnExcess::Reject, |time| OnExcess::Wait { at_most: time.0 }),
    }
}

fn rule(said: &raw::Rule, at: &Path, desk: &mut Desk<'_>) -> Rule {
    let mut rule = match said.decision {
        Decided::Deny => Rule::deny(said.tool.as_str()),
        Decided::Ask => Rule::ask(said.tool.as_str()),
        Decided::Allow => Rule::allow(said.tool.as_str()),
    };
    for (pointer, pattern) in &said.arguments {
        // Alone, so that the problem has its own place.
        let alone = Rule::deny("*").when(pointer.as_str(), pattern.as_str());
        if let Err(error) = alone.check() {
            let help =
                "write \"/pointer/to/argument\" = \"regular expression\"; a backslash is written twice, or in '…'";
            let flaws: Vec<String> = error.problems.iter().map(|flaw| first_line(flaw)).collect();
            desk.wrong(&at.key("arguments").key(pointer), flaws.join("; "), help);
        }
        rule = rule.when(pointer.as_str(), pattern.as_str());
    }
    if let Some(caller) = &said.caller {
        if let Err(flaw) = Glob::new(caller.as_str()) {
            desk.wrong(&at.key("caller"), flaw, "leave it out for anybody");
        }
        rule = rule.caller(caller.as_str());
    }
    let raw::Matching { read_only, destructive, idempotent, open_world } = said.annotations;
    rule.annotations = AnnotationMatch { read_only, destructive, idempotent, open_world };
    rule.reason.clone_from(&said.reason);
    rule.approval_timeout = said.approval_timeout.map(|time| time.0);
    if rule.approval_timeout.is_some() && rule.decision != Decision::Ask {
        let message = format!("`approval_timeout` does nothing where the decision is {:?}", rule.decision.to_string());
        desk.wrong(&at.key("approval_timeout"), message, "remove it, or use decision = \"ask\"");
    }
    rule
}

/// The reader of patterns draws a picture, for which there is a better place.
fn first_line(text: &str) -> String {
    let (first, last) = (text.lines().next().unwrap_or_default(), text.lines().last().unwrap_or_default());
    match (first.strip_suffix(" regex parse error:"), last.strip_prefix("error: ")) {
        (Some(what), Some(why)) => format!("{what} {why}"),
        _ => text.into(),
    }
}

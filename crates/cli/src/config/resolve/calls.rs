//! Resolves the policies for calls: `[defaults]`, `[[limits]]` and `[[policy]]`.

use toolhub::{AnnotationMatch, Decision, Glob, Rule};

use super::{
    super::{
        raw::{self, RawConfig, RuleDecision},
        tree::Path,
    },
    Diagnostics, Policies,
};

pub(super) fn resolve(raw: &RawConfig, diagnostics: &mut Diagnostics<'_>) -> Policies {
    let mut limits = Vec::with_capacity(raw.limits.len());
    for (index, limit) in raw.limits.iter().enumerate() {
        let at = Path::of(["limits"]).index(index);
        check_tool_glob(&at.key("tool"), &limit.tool, &raw.tools, diagnostics);
        limits.push((limit.tool.clone(), limit.calls.policy(&at, diagnostics)));
    }
    let mut rules = Vec::with_capacity(raw.policy.len());
    for (index, rule) in raw.policy.iter().enumerate() {
        let at = Path::of(["policy"]).index(index);
        check_tool_glob(&at.key("tool"), &rule.tool, &raw.tools, diagnostics);
        rules.push(resolve_rule(rule, &at, diagnostics));
    }
    Policies { defaults: raw.defaults.policy(&Path::of(["defaults"]), diagnostics), limits, rules }
}

/// A name without a wildcard must be the name of a tool; misspelled, it would silently apply to nothing.
fn check_tool_glob(
    path: &Path,
    glob: &str,
    tools: &std::collections::BTreeMap<String, raw::Tool>,
    diagnostics: &mut Diagnostics<'_>,
) {
    if glob.contains(['*', '?']) || tools.contains_key(glob) {
        return;
    }
    let close = super::super::suggest::closest(glob, tools.keys().map(String::as_str));
    let help = close.map_or_else(
        || "name a tool of this config, or use a glob such as \"*\"".into(),
        |name| format!("did you mean {name:?}?"),
    );
    diagnostics.report(path, format!("there is no tool named `{glob}`"), help);
}

fn resolve_rule(raw: &raw::Rule, at: &Path, diagnostics: &mut Diagnostics<'_>) -> Rule {
    let mut rule = match raw.decision {
        RuleDecision::Deny => Rule::deny(raw.tool.as_str()),
        RuleDecision::Ask => Rule::ask(raw.tool.as_str()),
        RuleDecision::Allow => Rule::allow(raw.tool.as_str()),
    };
    for (pointer, pattern) in &raw.arguments {
        // Check each condition separately, so that a problem is located at its own key.
        let single = Rule::deny("*").when(pointer.as_str(), pattern.as_str());
        if let Err(error) = single.check() {
            let help =
                "write \"/pointer/to/argument\" = \"regular expression\"; a backslash is written twice, or in '…'";
            let messages: Vec<String> = error.problems.iter().map(|message| shorten_regex_error(message)).collect();
            diagnostics.report(&at.key("arguments").key(pointer), messages.join("; "), help);
        }
        rule = rule.when(pointer.as_str(), pattern.as_str());
    }
    if let Some(caller) = &raw.caller {
        if let Err(error) = Glob::new(caller.as_str()) {
            diagnostics.report(&at.key("caller"), error, "omit it for any caller");
        }
        rule = rule.caller(caller.as_str());
    }
    let raw::AnnotationFilter { read_only, destructive, idempotent, open_world } = raw.annotations;
    rule.annotations = AnnotationMatch { read_only, destructive, idempotent, open_world };
    rule.reason.clone_from(&raw.reason);
    rule.private = raw.private;
    if raw.private && raw.reason.is_none() {
        diagnostics.report(
            &at.key("private"),
            "`private` has no effect without a reason",
            "add `reason`, or remove it",
        );
    }
    rule.approval_timeout = raw.approval_timeout.map(|time| time.0);
    if rule.approval_timeout.is_some() && rule.decision != Decision::Ask {
        let message = format!("`approval_timeout` has no effect with decision = {:?}", rule.decision.to_string());
        diagnostics.report(&at.key("approval_timeout"), message, "remove it, or use decision = \"ask\"");
    }
    rule
}

/// Drops the diagram of a regex error, because the problem has its own excerpt.
fn shorten_regex_error(text: &str) -> String {
    let (first, last) = (text.lines().next().unwrap_or_default(), text.lines().last().unwrap_or_default());
    match (first.strip_suffix(" regex parse error:"), last.strip_prefix("error: ")) {
        (Some(what), Some(why)) => format!("{what} {why}"),
        _ => text.into(),
    }
}

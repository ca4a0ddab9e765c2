//! What holds for calls: `[defaults]`, `[[limits]]` and `[[policy]]`, in the words of core.

use toolhub::{AnnotationMatch, Decision, Glob, Rule};

use super::{
    super::{
        raw::{self, Decided, RawConfig},
        tree::Path,
    },
    Diagnostics, Policies,
};

pub(super) fn resolve(raw: &RawConfig, desk: &mut Diagnostics<'_>) -> Policies {
    let mut limits = Vec::with_capacity(raw.limits.len());
    for (place, limit) in raw.limits.iter().enumerate() {
        let at = Path::of(["limits"]).index(place);
        check_tool_glob(&at.key("tool"), &limit.tool, &raw.tools, desk);
        limits.push((limit.tool.clone(), limit.calls.policy(&at, desk)));
    }
    let mut rules = Vec::with_capacity(raw.policy.len());
    for (place, said) in raw.policy.iter().enumerate() {
        let at = Path::of(["policy"]).index(place);
        check_tool_glob(&at.key("tool"), &said.tool, &raw.tools, desk);
        rules.push(resolve_rule(said, &at, desk));
    }
    Policies { defaults: raw.defaults.policy(&Path::of(["defaults"]), desk), limits, rules }
}

/// A name without a glob is a name of a tool; misspelled, it would silently guard nothing.
fn check_tool_glob(
    path: &Path,
    glob: &str,
    tools: &std::collections::BTreeMap<String, raw::Tool>,
    desk: &mut Diagnostics<'_>,
) {
    if glob.contains(['*', '?']) || tools.contains_key(glob) {
        return;
    }
    let close = super::super::closest::closest(glob, tools.keys().map(String::as_str));
    let help = close.map_or_else(
        || "name a tool of this config, or use a glob such as \"*\"".into(),
        |name| format!("did you mean {name:?}?"),
    );
    desk.report(path, format!("there is no tool named `{glob}`"), help);
}

fn resolve_rule(said: &raw::Rule, at: &Path, desk: &mut Diagnostics<'_>) -> Rule {
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
            let flaws: Vec<String> = error.problems.iter().map(|flaw| shorten_regex_error(flaw)).collect();
            desk.report(&at.key("arguments").key(pointer), flaws.join("; "), help);
        }
        rule = rule.when(pointer.as_str(), pattern.as_str());
    }
    if let Some(caller) = &said.caller {
        if let Err(flaw) = Glob::new(caller.as_str()) {
            desk.report(&at.key("caller"), flaw, "leave it out for anybody");
        }
        rule = rule.caller(caller.as_str());
    }
    let raw::Matching { read_only, destructive, idempotent, open_world } = said.annotations;
    rule.annotations = AnnotationMatch { read_only, destructive, idempotent, open_world };
    rule.reason.clone_from(&said.reason);
    rule.approval_timeout = said.approval_timeout.map(|time| time.0);
    if rule.approval_timeout.is_some() && rule.decision != Decision::Ask {
        let message = format!("`approval_timeout` does nothing where the decision is {:?}", rule.decision.to_string());
        desk.report(&at.key("approval_timeout"), message, "remove it, or use decision = \"ask\"");
    }
    rule
}

/// The reader of patterns draws a picture, for which there is a better place.
fn shorten_regex_error(text: &str) -> String {
    let (first, last) = (text.lines().next().unwrap_or_default(), text.lines().last().unwrap_or_default());
    match (first.strip_suffix(" regex parse error:"), last.strip_prefix("error: ")) {
        (Some(what), Some(why)) => format!("{what} {why}"),
        _ => text.into(),
    }
}

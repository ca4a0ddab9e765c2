//! Cases of `missing_dependencies`: recorded successes, declared groups, missing dependencies.

use super::*;

fn names(text: &str) -> Vec<ToolName> {
    text.split_whitespace().map(|name| ToolName::new(name).unwrap()).collect()
}

fn all(tools: &str, within: Option<u64>) -> DependencyGroup {
    DependencyGroup::All { tools: names(tools), within: within.map(Duration::from_secs) }
}

fn any(tools: &str, within: Option<u64>) -> DependencyGroup {
    DependencyGroup::Any { tools: names(tools), within: within.map(Duration::from_secs) }
}

fn sequence(tools: &str) -> DependencyGroup {
    DependencyGroup::Sequence { tools: names(tools), within: None }
}

/// Successes as "tool@second", then the dependencies missing at second 100, one word each.
#[track_caller]
fn check(successes: &str, groups: &[DependencyGroup], expected: &str) {
    let mut evidence = Evidence::default();
    for success in successes.split_whitespace() {
        let (tool, second) = success.split_once('@').unwrap();
        let at = Timestamp::from_millis(second.parse::<i64>().unwrap() * 1000);
        evidence.add(&ToolName::new(tool).unwrap(), at);
    }
    let text = serde_json::to_string(&evidence).unwrap();
    assert_eq!(serde_json::from_str::<Evidence>(&text).unwrap(), evidence);
    let missing = missing_dependencies(&DependsOn(groups.to_vec()), &evidence, Timestamp::from_millis(100_000));
    let words = missing.iter().map(|dependency| match dependency {
        MissingDependency::NeverSucceeded { tool } => tool.to_string(),
        MissingDependency::Stale { tool, .. } => format!("{tool}:old"),
        MissingDependency::NoneOf { tools } => join_names(tools, "|"),
        MissingDependency::OutOfOrder { earlier, later } => format!("{earlier}>{later}"),
    });
    assert_eq!(words.collect::<Vec<_>>().join(" "), expected, "after {successes:?}");
}

fn join_names(tools: &[ToolName], separator: &str) -> String {
    tools.iter().map(ToolName::as_str).collect::<Vec<_>>().join(separator)
}

#[test]
fn all_of_a_group_must_have_succeeded() {
    check("", &[all("a b", None)], "a b");
    check("b@1", &[all("a b", None)], "a");
    check("b@1 a@2", &[all("a b", None)], "");
}

#[test]
fn any_of_a_group_is_enough() {
    check("", &[any("a b", None)], "a|b");
    check("b@1", &[any("a b", None)], "");
    check("", &[any("", None)], "");
}

#[test]
fn every_group_must_be_satisfied() {
    check("a@1", &[any("a b", None), all("c", None)], "c");
    check("", &[], "");
}

#[test]
fn freshness_looks_at_the_last_success() {
    check("a@10", &[all("a", Some(90))], "");
    check("a@9", &[all("a", Some(90))], "a:old");
    check("a@9 a@50", &[all("a", Some(90))], "");
    check("a@9 b@50", &[any("a b", Some(90))], "");
    check("a@9 b@8", &[any("a b", Some(90))], "a|b");
}

#[test]
fn a_sequence_looks_at_the_order_of_first_successes() {
    check("", &[sequence("a b c")], "a b c");
    check("a@1", &[sequence("a b c")], "b c");
    check("a@1 b@2 c@3", &[sequence("a b c")], "");
    check("a@1 b@2 c@3 a@4 b@5", &[sequence("a b c")], "");
    check("x@0 a@1 y@1 b@2", &[sequence("a b")], "");
}

#[test]
fn a_wrong_order_is_named_at_once_and_stays_wrong() {
    check("b@1", &[sequence("a b")], "a>b");
    check("b@1 a@2", &[sequence("a b")], "a>b");
    check("b@1 a@2 b@3", &[sequence("a b")], "a>b");
    check("c@1 a@2", &[sequence("a b c")], "a>c");
}

#[test]
fn a_clock_set_back_turns_no_order_round_and_ages_nothing() {
    check("a@90 b@10", &[sequence("a b")], "");
    check("a@5000", &[all("a", Some(10))], "");
}

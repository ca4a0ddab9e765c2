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

/// Successes as "tool@second" and resets as "-tool@second", then the dependencies missing at second 100, one word each.
#[track_caller]
fn check(successes: &str, groups: &[DependencyGroup], expected: &str) {
    let sequences: Vec<&[ToolName]> = groups
        .iter()
        .filter(|group| matches!(group, DependencyGroup::Sequence { .. }))
        .map(DependencyGroup::tools)
        .collect();
    let mut evidence = Evidence::default();
    for success in successes.split_whitespace() {
        let (tool, second) = success.split_once('@').unwrap();
        let at = Timestamp::from_millis(second.parse::<i64>().unwrap() * 1000);
        match tool.strip_prefix('-') {
            None => evidence.add(&ToolName::new(tool).unwrap(), at, sequences.iter().copied()),
            Some(reset) => drop(evidence.reset(&ToolName::new(reset).unwrap(), at)),
        }
    }
    let text = serde_json::to_string(&evidence).unwrap();
    assert_eq!(serde_json::from_str::<Evidence>(&text).unwrap(), evidence);
    let missing = missing_dependencies(&DependsOn(groups.to_vec()), &evidence, Timestamp::from_millis(100_000));
    let words = missing.iter().map(|dependency| match dependency {
        MissingDependency::NeverSucceeded { tool } => tool.to_string(),
        MissingDependency::Stale { tool, .. } => format!("{tool}:old"),
        MissingDependency::NoneOf { tools } => join_names(tools, "|"),
        MissingDependency::OutOfOrder { tool, .. } => format!("{tool}:again"),
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
fn a_sequence_is_met_when_successes_in_its_order_exist() {
    check("", &[sequence("a b c")], "a b c");
    check("a@1", &[sequence("a b c")], "b c");
    check("a@1 b@2 c@3", &[sequence("a b c")], "");
    check("a@1 b@2 c@3 a@4 b@5", &[sequence("a b c")], "");
    check("x@0 a@1 y@1 b@2", &[sequence("a b")], "");
    check("b@0 a@1 b@2 c@3 b@4", &[sequence("a b c")], "");
}

#[test]
fn a_wrong_order_is_mended_by_calling_again_in_the_right_order() {
    check("b@1", &[sequence("a b")], "a b:again");
    check("b@1 a@2", &[sequence("a b")], "b:again");
    check("b@1 a@2 b@3", &[sequence("a b")], "");
    check("b@1 a@2 b@3 a@4", &[sequence("a b")], "");
    check("c@1 a@2", &[sequence("a b c")], "b c:again");
    check("c@1 b@2 a@3 c@4 b@5", &[sequence("a b c")], "c:again");
    check("c@1 b@2 a@3 c@4 b@5 c@6", &[sequence("a b c")], "");
}

#[test]
fn a_reset_takes_a_tool_and_what_came_after_it_in_a_sequence_away() {
    check("a@1 -a@2", &[all("a", None)], "a");
    check("a@1 -a@2 a@3", &[all("a", None)], "");
    check("a@1 b@2 -a@3", &[sequence("a b")], "a b:again");
    check("a@1 b@2 -a@3 a@4", &[sequence("a b")], "b:again");
    check("a@1 b@2 -a@3 a@4 b@5", &[sequence("a b")], "");
    check("b@1 a@2 b@3 c@4 -c@5", &[sequence("a b c")], "c");
    check("b@1 a@2 b@3 c@4 -b@5 c@6", &[sequence("a b c")], "b c:again");
}

#[test]
fn a_success_that_is_found_later_counts_by_its_time() {
    let name = |tool: &str| ToolName::new(tool).unwrap();
    let at = |second: i64| Timestamp::from_millis(second * 1000);
    let found = |tool: &str, second| {
        let mut found = Evidence::default();
        found.add(&name(tool), at(second), []);
        found
    };
    let mut evidence = found("b", 5);
    evidence.merge(&found("a", 3));
    evidence.merge(&found("b", 4));
    let depends_on = DependsOn(vec![sequence("a b")]);
    assert_eq!(missing_dependencies(&depends_on, &evidence, at(9)), []);
    assert_eq!(dependencies_changed(&depends_on, &evidence, at(9)), Some(at(5)));
    assert_eq!(evidence.get(&name("b")).unwrap().last, at(5));
    evidence.merge(&found("b", 8));
    assert_eq!(evidence.get(&name("b")).map(|success| (success.first, success.last)), Some((at(5), at(8))));
    evidence.reset(&name("b"), at(10));
    assert_eq!((evidence.get(&name("b")), evidence.reset_at(&name("b"))), (None, Some(at(10))));
    assert_eq!(dependencies_changed(&depends_on, &evidence, at(12)), Some(at(10)));
}

#[test]
fn the_time_of_the_last_change_follows_the_dependencies() {
    #[track_caller]
    fn check(successes: &str, group: DependencyGroup, expected: Option<i64>) {
        let mut evidence = Evidence::default();
        for success in successes.split_whitespace() {
            let (tool, second) = success.split_once('@').unwrap();
            let at = Timestamp::from_millis(second.parse::<i64>().unwrap() * 1000);
            evidence.add(&ToolName::new(tool).unwrap(), at, [group.tools()]);
        }
        let changed = dependencies_changed(&DependsOn(vec![group]), &evidence, Timestamp::from_millis(100_000));
        assert_eq!(changed.map(Timestamp::millis), expected, "after {successes:?}");
    }
    check("", all("a", None), None);
    check("a@1 a@50", all("a", None), Some(1_000));
    check("a@1 b@20", all("a b", None), Some(20_000));
    check("a@1 b@20", any("a b", None), Some(1_000));
    check("b@1 a@20 b@30 b@40", sequence("a b"), Some(30_000));
    check("a@50 a@80", all("a", Some(60)), Some(50_000));
    check("a@1 a@80", all("a", Some(60)), Some(80_000));
    check("a@20", all("a", Some(60)), Some(80_001));
    check("a@20 b@70", any("a b", Some(60)), Some(70_000));
}

#[test]
fn a_clock_set_back_turns_no_order_round_and_ages_nothing() {
    check("a@90 b@10", &[sequence("a b")], "");
    check("a@5000", &[all("a", Some(10))], "");
}

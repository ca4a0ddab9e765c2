//! Which rule matches which call, and the labels and errors of rules.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::tool::{Annotations, DependsOn, Kind, Metadata, ToolName};

fn tool(name: &str, annotations: Annotations) -> Definition {
    let name = ToolName::new(name).unwrap();
    Definition {
        id: Definition::derive_id(&Kind::Stateless, &name, None),
        name,
        kind: Kind::Stateless,
        description: String::new(),
        parameters: json!({"type": "object"}),
        output_schema: None,
        annotations,
        metadata: Metadata::default(),
        depends_on: DependsOn::default(),
        origin: None,
        config: Value::Null,
    }
}

fn read_only_annotations() -> Annotations {
    Annotations { read_only: true, destructive: false, ..Annotations::default() }
}

fn caller(name: &str) -> Caller {
    Caller::new(name).unwrap()
}

/// Checks the decision and the index of the rule that matches a call of `pay` with these arguments by `bot-7`.
#[track_caller]
fn check(rules: &[Rule], arguments: &Value, expected: Option<(Decision, usize)>) {
    let pay = tool("pay", Annotations::default());
    let compiled = Rules::new(rules.to_vec()).unwrap().for_tool(&pay);
    let matched = compiled.decide(arguments, &caller("bot-7"));
    let index = |found: &Rule| rules.iter().position(|rule| rule == found).unwrap();
    assert_eq!(matched.map(|rule| (rule.decision, index(rule))), expected);
}

#[test]
fn deny_comes_before_ask_and_ask_before_allow_wherever_they_stand() {
    let none = json!({});
    check(&[Rule::allow("*"), Rule::ask("*"), Rule::deny("*")], &none, Some((Decision::Deny, 2)));
    check(&[Rule::allow("*"), Rule::ask("*"), Rule::deny("other")], &none, Some((Decision::Ask, 1)));
    check(&[Rule::allow("pay"), Rule::ask("pay_*")], &none, Some((Decision::Allow, 0)));
}

#[test]
fn among_equal_decisions_the_first_written_speaks() {
    let rules = [Rule::allow("*"), Rule::ask("other"), Rule::ask("p*"), Rule::ask("pay")];
    check(&rules, &json!({}), Some((Decision::Ask, 2)));
}

#[test]
fn where_no_rule_matches_nothing_is_said() {
    check(&[], &json!({}), None);
    check(&[Rule::deny("other"), Rule::ask("Pay")], &json!({}), None);
    assert!(Rules::default().is_empty());
    assert!(!Rules::new(vec![Rule::deny("x")]).unwrap().is_empty());
}

#[test]
fn every_condition_on_the_arguments_must_hold() {
    let rule = [Rule::ask("pay").when("/amount", r"^\d{4,}").when("/to/country", "^(?i)xy$")];
    check(&rule, &json!({"amount": 1000, "to": {"country": "XY"}}), Some((Decision::Ask, 0)));
    check(&rule, &json!({"amount": 999, "to": {"country": "XY"}}), None);
    check(&rule, &json!({"amount": 1000, "to": {}}), None);
    check(&rule, &json!([]), None);
}

#[test]
fn a_rule_may_be_about_some_callers_only() {
    check(&[Rule::deny("*").caller("bot-*")], &json!({}), Some((Decision::Deny, 0)));
    check(&[Rule::deny("*").caller("bot")], &json!({}), None);
}

#[test]
fn annotations_must_be_as_the_rule_wants_them_and_may_be_anything_otherwise() {
    let all = Annotations { title: None, read_only: true, destructive: true, idempotent: true, open_world: true };
    let none = Annotations { title: None, read_only: false, destructive: false, idempotent: false, open_world: false };
    let setters: [fn(Rule, bool) -> Rule; 4] = [Rule::read_only, Rule::destructive, Rule::idempotent, Rule::open_world];
    for set in setters {
        for required in [true, false] {
            let rules = Rules::new(vec![set(Rule::ask("*"), required)]).unwrap();
            for (annotations, actual) in [(&all, true), (&none, false)] {
                let rules = rules.for_tool(&tool("any", annotations.clone()));
                let found = rules.decide(&json!({}), &caller("me"));
                assert_eq!(found.is_some(), required == actual, "{required} {actual}");
            }
        }
    }
    check(&[Rule::ask("*").destructive(true).read_only(true)], &json!({}), None);
    check(&[Rule::ask("*").destructive(true).read_only(false)], &json!({}), Some((Decision::Ask, 0)));
}

#[test]
fn a_tool_is_denied_outright_only_where_no_argument_could_save_it() {
    let denied = |rule: Rule, caller: Option<&Caller>| {
        Rules::new(vec![Rule::allow("*"), rule])
            .unwrap()
            .deny_all_rule(&tool("pay", read_only_annotations()), caller)
            .is_some()
    };
    let (bot, ann) = (caller("bot-7"), caller("ann"));
    assert!(denied(Rule::deny("pay"), None));
    assert!(denied(Rule::deny("pay").read_only(true), None));
    assert!(!denied(Rule::deny("pay").read_only(false), None));
    assert!(!denied(Rule::deny("pay").when("/amount", ""), Some(&bot)));
    assert!(!denied(Rule::ask("pay"), Some(&bot)));
    assert!(denied(Rule::deny("pay").caller("bot-*"), Some(&bot)));
    assert!(!denied(Rule::deny("pay").caller("bot-*"), Some(&ann)));
    assert!(!denied(Rule::deny("pay").caller("*"), None));
}

#[test]
fn every_broken_rule_is_named_with_all_that_is_wrong() {
    let broken = Rule::ask("").caller("").when("amount", "(");
    let other = Rule::deny("pay").when("/x", "[");
    let errors = Rules::new(vec![broken.clone(), Rule::allow("*"), other]).unwrap_err();
    assert_eq!(errors.len(), 2);
    assert_eq!(errors[0].problems.len(), 4, "{}", errors[0]);
    assert!(errors[0].to_string().contains(r#"the rule `ask "" when amount ~ ( by ""` is invalid: tool: "#));
    assert!(errors[1].to_string().contains("deny pay when /x ~ ["));
    assert_eq!(broken.check().unwrap_err(), errors[0]);
    assert_eq!(Rule::allow("*").check(), Ok(()));
}

#[test]
fn a_label_says_what_a_rule_matches_and_no_more() {
    let cases = [
        (Rule::ask("payments__*").when("/amount", r"^\d{4,}"), r"ask payments__* when /amount ~ ^\d{4,}"),
        (Rule::deny("*").destructive(true).idempotent(false), "deny * if destructive and not idempotent"),
        (
            Rule::allow("a").when("/x", "1").when("", "a b").caller("bot-*"),
            r#"allow a when /x ~ 1 and "" ~ "a b" by bot-*"#,
        ),
        (Rule::ask("a by b").reason("x").approval_timeout(Duration::from_secs(9)), r#"ask "a by b""#),
    ];
    for (rule, label) in cases {
        assert_eq!(rule.label(), label);
    }
}

#[test]
fn a_rule_is_written_as_its_texts() {
    let rule = Rule::ask("pay")
        .when("/amount", r"\d")
        .destructive(true)
        .approval_timeout(Duration::from_secs(60))
        .reason("money");
    let json = json!({
        "tool": "pay", "decision": "ask", "annotations": {"destructive": true}, "reason": "money",
        "arguments": [{"pointer": "/amount", "pattern": r"\d"}], "approvalTimeoutMs": 60_000,
    });
    assert_eq!(serde_json::to_value(&rule).unwrap(), json);
    assert_eq!(serde_json::to_value(Rule::deny("x")).unwrap(), json!({"tool": "x", "decision": "deny"}));
}

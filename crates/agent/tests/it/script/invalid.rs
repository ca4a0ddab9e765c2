//! Invalid scripts: all problems are reported together, each with its line.

use toolhub_agent::Script;

#[track_caller]
fn check(script: &str, expected: &[&str]) {
    let error = Script::parse(script).expect_err("an invalid script");
    let lines: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
    assert_eq!(lines, expected, "{script}");
}

#[test]
fn every_problem_is_found_at_once() {
    check(
        r#"[[turn]]
wen = { user = "x" }
say = "in $ctiy"
[[turn]]
when = { user = "(?<city", tool_avialable = "a", tool_missing = 7 }
call = { tool = "a" }
[[turn]]
when = { user = '(?<city>.)' }
call = [{ args = { city = 7 } }, { tool = 7 }, { tool = "a", arg = {} }, { tool = "a", args = [] }]
[[turn]]
say = "${results} "
[[turn]]
fault = { status = 200, slow = 2, cut = "yes", times = 0 }
[[turn]]
fault = { status = 500, cut = true }
say = "x"
repeat = 0
[[turn]]
when = { user = "y" }
[default]
call = []
[tools]
"#,
        &[
            "line 2: a turn has no `wen`; did you mean `when`?",
            "line 3: no `user` pattern has a group `ctiy`; did you mean `$city`?",
            "line 5: `when` has no `tool_avialable`; did you mean `tool_available`?",
            "line 5: `tool_missing` must be a tool name or a list of tool names",
            "line 5: `user` is not a valid pattern: unclosed capture group name; write patterns in single quotes, so that backslashes need no escaping",
            "line 6: `call` must be a list; write call = [{ tool = \"…\", args = { … } }]",
            "line 9: this call names no tool; write tool = \"…\"",
            "line 9: `tool` must be a quoted string",
            "line 9: a call has no `arg`; did you mean `args`?",
            "line 9: `args` must be a table, such as { city = \"$city\" }",
            "line 11: `${results}` needs a tool name, as in `${results.weather}`",
            "line 13: `cut` must be true or false",
            "line 13: `slow` must be a quoted duration, such as \"250ms\", \"2s\" or \"1m\"",
            "line 13: `status` must be a whole number from 400 to 599",
            "line 13: `times` must be a whole number from 1 to 1000000",
            "line 15: `status` cannot be combined with `cut` or `malformed`; remove `status` or the others",
            "line 17: `repeat` must be a whole number from 1 to 1000",
            "line 18: this turn has neither `say` nor `call`; write say = \"…\", or call = [{ tool = \"…\", args = { … } }]",
            "line 21: the default has no `call`; the default has `say`, `fault`",
            "line 22: a script has no `tools`; a script has `turn`, `default`",
        ],
    );
}

#[test]
fn what_is_no_toml_is_said_with_its_line() {
    let error = Script::parse("[[turn]]\nsay = hello\n").expect_err("invalid TOML");
    assert_eq!(error.problems.len(), 1, "{error}");
    assert!(error.to_string().starts_with("line 2: invalid TOML: "), "{error}");
}

#[test]
fn names_that_stand_for_something_are_no_groups() {
    check(
        "[[turn]]\nwhen = { user = '(?<result>.)' }\nsay = 'x'",
        &["line 2: `result` is reserved and cannot name a group; give the group another name"],
    );
    check("[turn]\nsay = 'x'", &["line 1: `turn` must be a list; write [[turn]] with two brackets"]);
    check(
        "[[turn]]\nsay = 'x'\nfault = { malformed = true }",
        &["line 1: `malformed` applies to calls, and this turn has none"],
    );
}

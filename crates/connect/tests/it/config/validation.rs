//! All problems of a config are reported together, each with its key and what to do.

use serde_json::{Value, json};
use toolhub_connect::config::{ToolConfig, ToolFactory, create_tool};

use super::{factory, parse_config, problems};

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let found = problems(
        &factory(),
        json!({
            "name": "two words",
            "url": "https://{host}/x",
            "kind": "stateful",
            "args": ["x"],
            "attempt_timeout": "10s",
            "timeout": "5s",
            "retry": {"attempts": 0},
            "state": {"cleanup": "never"},
            "colour": "red",
        }),
    );
    let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
    for key in ["name", "url", "kind", "args", "attempt_timeout", "retry.attempts", "colour", "state"] {
        assert!(keys.contains(&key), "{key} is not in {found:#?}");
    }
    assert!(found.iter().all(|(_, text)| text.ends_with(')')), "a problem without help: {found:#?}");
}

#[track_caller]
fn problem_keys(json: Value) -> Vec<String> {
    problems(&factory(), json).into_iter().map(|(key, _)| key).collect()
}

#[test]
fn one_mistake_hides_no_other() {
    let found = problem_keys(json!({
        "name": "it", "url": "https://{host}/x", "method": "POST", "cache": {}, "state": {"cleanup": "never"},
        "headers": {"X-Token": {"env": "NO_SUCH_VARIABLE"}, "x y": "z"}, "auth": {"type": "bearer"}, "result": {"select": "a"},
    }));
    let expected = ["headers.X-Token.env", "auth", "url", "headers.\"x y\"", "result.select", "state", "cache"];
    assert_eq!(found, expected);
    // A missing address is reported only once.
    let found = problem_keys(json!({"name": "it", "kind": "rest", "headers": {"x y": "z"}, "cache": {}}));
    assert_eq!(found, ["", "headers.\"x y\""]);
    let found = problem_keys(json!({
        "name": "it", "command": "", "env": {"A": {"env": "NO_SUCH_VARIABLE"}, "B=": "x", "C": "\0"}, "pass_env": ["OK", "D="],
        "args": ["fine", "\0"], "cache": {},
    }));
    let expected = ["command", "env.A.env", "env.\"B=\"", "pass_env[1]", "args[1]", "env.C", "cache"];
    assert_eq!(found, expected);
}

#[test]
fn what_is_wrong_with_a_request_is_told_at_the_key_that_was_written() {
    let url = "https://a.example/";
    for (mut config, key) in [
        (json!({"url": "https://a.example/a/../b"}), "url"),
        (json!({"base_url": url, "path": "a/../b"}), "path"),
        (json!({"base_url": url, "path": "{a"}), "path"),
        (json!({"url": url, "method": "POST", "form": {"a.b": "{c"}}), "form.\"a.b\""),
        (json!({"url": url, "form": {"a": "b"}}), "form"),
        (json!({"url": url, "body": {"a": "b"}}), "body"),
        (json!({"url": url, "headers": {"X.Y": "{z"}}), "headers.\"X.Y\""),
        (json!({"url": url, "headers": {"Cookie": "a=b"}}), "headers.Cookie"),
        (json!({"url": url, "query": {"a.b": "{c"}}), "query.\"a.b\""),
        (json!({"url": url, "connection": {"pool_size": 0, "max_overflow": 0}}), "connection.pool_size"),
    ] {
        config["name"] = "it".into();
        assert_eq!(problem_keys(config.clone()), [key], "{config}");
    }
}

#[test]
fn the_whole_is_one_text_that_can_be_read() {
    let config = parse_config(json!({"name": "it", "builtin": "shuot", "timeut": "5s"}));
    let error = factory().create_tool(&config).map(drop).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid config of tool `it`: `timeut`: unknown key `timeut` (did you mean `timeout`?); \
         `builtin`: there is no function named `shuot` (did you mean \"shout\"?)"
    );
}

#[test]
fn a_key_that_nobody_knows_is_never_passed_over() {
    for (key, close) in
        [("urll", "url"), ("pass-env", "pass_env"), ("maxConcurrency", "max_concurrency"), ("nam", "name")]
    {
        let found = problems(&factory(), json!({"name": "it", "builtin": "shout", key: "x"}));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].0.contains(key) && found[0].1.contains(&format!("did you mean `{close}`?")), "{found:?}");
    }
    let enabled = problems(&factory(), json!({"name": "it", "builtin": "shout", "enabled": false}));
    assert!(enabled[0].1.contains("do not create it"), "{enabled:?}");
    // Unknown keys of nested tables are errors of the deserialization.
    for (inside, unknown) in [
        (json!({"auth": {"type": "bearer", "tokn": "x"}}), "tokn"),
        (json!({"retry": {"atempts": 2}}), "atempts"),
        (json!({"connection": {"pool": 2}}), "pool"),
        (json!({"state": {"tll": "5s"}}), "tll"),
        (json!({"annotations": {"readonly": true}}), "readonly"),
    ] {
        let error = serde_json::from_value::<ToolConfig>(inside).unwrap_err().to_string();
        assert!(error.contains(unknown), "{error}");
    }
    for inside in [
        json!({"rate_limit": {"request": 2}}),
        json!({"depends_on": {"each": ["a"]}}),
        json!({"headers": {"x": {"env": "A", "file": "b"}}}),
    ] {
        assert!(serde_json::from_value::<ToolConfig>(inside.clone()).is_err(), "{inside}");
    }
    // A round trip through JSON keeps the unknown key, but not its value.
    let text =
        serde_json::to_string(&parse_config(json!({"name": "it", "builtin": "shout", "token": "s3cr3t"}))).unwrap();
    assert!(text.contains("token") && !text.contains("s3cr3t"), "{text}");
}

#[track_caller]
fn check(mut config: Value, key: &str, fragment: &str) {
    config["name"] = "it".into();
    let found = problems(&factory(), config);
    assert!(found.iter().any(|(at, text)| at == key && text.contains(fragment)), "{key}, {fragment}: {found:#?}");
}

#[test]
fn what_makes_no_sense_is_refused_at_its_key() {
    check(json!({}), "", "the tool has no `url`, `command` or `builtin`");
    check(json!({"builtin": "shout", "command": "x"}), "", "exclude each other");
    check(json!({"builtin": "shout", "kind": "rest"}), "kind", "stateless");
    check(json!({"builtin": "shout", "state": {"cleanup": "never"}}), "state", "is stateless");
    check(json!({"url": "https://a.example", "method": "POST", "cache": {}}), "cache", "read-only");
    check(json!({"url": "https://a.example", "base_url": "https://b.example"}), "url", "given twice");
    check(json!({"url": "https://a.example", "auth": {"type": "basic", "password": "x"}}), "auth", "needs `username`");
    check(json!({"command": " "}), "command", "empty");
    check(json!({"command": "x", "parameters": {"type": "objct"}}), "parameters", "must be an object");
    check(json!({"url": "https://a.example", "parameters": {"properties": 7}}), "parameters", "is invalid");
    check(
        json!({"command": "x", "kind": "stateful", "state": {"parameter_name": "arguments"}}),
        "state.parameter_name",
        "",
    );
    check(json!({"builtin": "shout", "depends_on": {"within": "5s"}}), "depends_on", "names no tools");
    check(json!({"builtin": "shout", "depends_on": []}), "depends_on", "");
    check(json!({"builtin": "shout", "max_concurrency": 0}), "max_concurrency", "");
    check(json!({"builtin": "shout", "rate_limit": [{"per": "1m"}, {"per": "400d"}]}), "rate_limit[1].per", "year");
    check(
        json!({"url": "https://a.example", "headers": {"x y": {"file": "/no/such/file"}}}),
        "headers.\"x y\".file",
        "cannot read",
    );
}

#[test]
fn a_secret_that_is_empty_or_was_written_masked_is_none() {
    for (text, part) in [("", "is empty"), ("••••", "masked"), ("••••1234", "masked")] {
        check(json!({"url": "https://a.example", "auth": {"type": "bearer", "token": text}}), "auth.token", part);
        check(json!({"url": "https://a.example", "headers": {"X-A": text}}), "headers.X-A", part);
        check(json!({"command": "x", "env": {"A": text}}), "env.A", part);
    }
    // A config that was serialized and parsed again is refused, so masked secrets are never sent.
    let config = parse_config(json!({"name": "it", "command": "x", "env": {"A": "the-secret-itself"}}));
    create_tool(&config).map(drop).unwrap();
    let reparsed: ToolConfig = serde_json::from_str(&serde_json::to_string(&config).unwrap()).unwrap();
    assert_eq!(create_tool(&reparsed).map(drop).unwrap_err().problems.len(), 1);
}

#[test]
fn a_function_that_nobody_brings_is_told_with_those_that_are_there() {
    let config = parse_config(json!({"name": "it", "builtin": "calculator"}));
    let none = create_tool(&config).map(drop).unwrap_err().to_string();
    assert!(none.contains("register it with `ToolFactory::function`"), "{none}");
    let other = factory().create_tool(&config).map(drop).unwrap_err().to_string();
    assert!(other.contains("use one of: shout"), "{other}");
    assert_eq!(factory().function_names().collect::<Vec<_>>(), ["shout"]);
    assert_eq!(format!("{:?}", ToolFactory::default()), "ToolFactory { functions: [], guard: None, .. }");
}

#[test]
fn a_time_without_a_unit_is_refused_with_what_to_write() {
    let error = serde_json::from_value::<ToolConfig>(json!({"timeout": "30 sec"})).unwrap_err().to_string();
    assert!(error.contains("write \"30s\""), "{error}");
}

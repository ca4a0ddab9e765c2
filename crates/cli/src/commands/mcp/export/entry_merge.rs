//! Merges an exported entry with the one that a client's config has.
//!
//! In: both entries. Out: the exported one, with what the user added: variables, switches, timeouts, headers, a program that starts the
//! hub in another way. Members of the other transport go, because a client would not know which one to use.

use std::path::Path;

use serde_json::{Map, Value};

/// Members of an entry that names a program, and of one that names an address.
const PROGRAM_MEMBERS: [&str; 6] = ["type", "command", "args", "env", "env_vars", "cwd"];
const ADDRESS_MEMBERS: [&str; 5] = ["type", "url", "httpUrl", "headers", "bearer_token_env_var"];

/// The exported entry with the user's own members.
pub(super) fn merge(existing: Option<&Value>, exported: &Value) -> Value {
    let (Some(Value::Object(existing)), Value::Object(exported)) = (existing, exported) else {
        return exported.clone();
    };
    let mut merged = existing.clone();
    match exported.contains_key("command") {
        true if existing.contains_key("url") || existing.contains_key("httpUrl") => {
            merged.retain(|name, _| !ADDRESS_MEMBERS.contains(&name.as_str()));
        }
        false if existing.contains_key("command") => {
            merged.retain(|name, _| !PROGRAM_MEMBERS.contains(&name.as_str()));
        }
        _ => {}
    }
    for (name, value) in exported {
        match (merged.get_mut(name), value) {
            (Some(Value::Object(members)), Value::Object(more)) => members.extend(more.clone()),
            (Some(_), _) if name == "command" && is_own_program(existing) => {}
            _ => drop(merged.insert(name.clone(), value.clone())),
        }
    }
    Value::Object(merged)
}

/// Whether the user has chosen the program that starts the hub.
fn is_own_program(entry: &Map<String, Value>) -> bool {
    let command = entry.get("command").and_then(Value::as_str).map(Path::new);
    let starts_hub = entry.get("args").and_then(Value::as_array).is_some_and(|args| args.contains(&"--stdio".into()));
    starts_hub && command.is_some_and(|command| command.is_absolute() && command.is_file())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(existing: &Value, exported: &Value, expected: &Value) {
        assert_eq!(merge(Some(existing), exported), *expected, "{existing}");
        assert_eq!(merge(Some(expected), exported), *expected, "a second time changes nothing");
    }

    #[test]
    fn what_the_user_added_stays_and_the_other_transport_goes() {
        assert_eq!(merge(None, &json!({"url": "u"})), json!({"url": "u"}));
        let program = json!({"command": "/new/toolhub", "args": ["--stdio"]});
        check(
            &json!({"command": "toolhub", "args": ["--stdio", "--config", "old"], "env": {"A": "1"}, "enabled": false}),
            &program,
            &json!({"command": "/new/toolhub", "args": ["--stdio"], "env": {"A": "1"}, "enabled": false}),
        );
        check(
            &json!({"command": "/bin/sh", "args": ["--stdio", "old"]}),
            &program,
            &json!({"command": "/bin/sh", "args": ["--stdio"]}),
        );
        // Programs that are gone, or are something else.
        for existing in [json!({"command": "/gone", "args": ["--stdio"]}), json!({"command": "/bin/sh", "args": ["x"]})]
        {
            check(&existing, &program, &program);
        }
        check(
            &json!({"type": "http", "url": "u", "headers": {"Authorization": "x"}, "timeout": 5}),
            &program,
            &json!({"command": "/new/toolhub", "args": ["--stdio"], "timeout": 5}),
        );
        check(
            &json!({"command": "toolhub", "args": [], "env": {"TOOLHUB_TOKEN": "x"}, "timeout": 5}),
            &json!({"httpUrl": "u"}),
            &json!({"httpUrl": "u", "timeout": 5}),
        );
        check(
            &json!({"url": "old", "headers": {"X": "1", "Authorization": "old"}}),
            &json!({"url": "u", "headers": {"Authorization": "new"}}),
            &json!({"url": "u", "headers": {"X": "1", "Authorization": "new"}}),
        );
    }
}

//! Checks definitions of tools and MCP servers that were sent over the API.
//!
//! In: a definition as JSON. Out: what is loaded from it by the rules of the config and by stricter ones: what concerns this machine
//! (programs, files, variables, private or local hosts) may only be set in its config file.

use serde_json::{Map, Value};
use toolhub::{config, server::ToolChangeError};

use super::api_definitions::Section;
use crate::config::{Problem, Problems};

/// Keys whose inner keys are free-form, and are not converted to snake case.
const FREE_FORM_KEYS: [&str; 7] = ["body", "form", "headers", "metadata", "parameters", "query", "tokenFields"];
/// Keys of tables by name: the names stay, what is inside them is converted.
const TABLES_BY_NAME: [&str; 1] = ["tools"];

/// Loads a definition with the keys of its section. `file_only` has keys that are only allowed in a config file, and what to do instead.
///
/// # Errors
/// All that is wrong with the request, for the client.
pub(super) fn load<T>(
    (section, name): (Section, &str),
    request: &Value,
    file_only: &[(&'static str, &str)],
    load: impl FnOnce(&Map<String, Value>) -> Result<T, Problems>,
) -> Result<T, ToolChangeError> {
    let refused = |messages: &[String]| Err(ToolChangeError::Refused(messages.join("; ")));
    let Some(members) = request.as_object() else {
        return refused(&[format!("the {} must be a JSON object", section.noun())]);
    };
    let mut definition = to_config_keys(members);
    definition.remove("name");
    let of_file = file_only.iter().filter(|(key, _)| definition.contains_key(*key));
    let of_file = of_file.map(|(key, help)| (*key, format!("`{key}` is not accepted over the API: {help}")));
    let references =
        secret_references(&definition).into_iter().map(|key| (key, format!("`{key}`: {SECRET_REFERENCE}")));
    let (keys, mut messages): (Vec<&str>, Vec<String>) = of_file.chain(references).unzip();
    keys.iter().for_each(|key| drop(definition.remove(*key)));
    if let Some(at) = find_null(&Value::Object(definition.clone())) {
        messages.push(format!("`{at}` is null, which a config cannot express; omit it, or write a value"));
        return refused(&messages);
    }
    match load(&definition) {
        Ok(loaded) if messages.is_empty() => return Ok(loaded),
        Ok(_) => {}
        Err(problems) => messages.extend(problems.iter().map(|problem| format_problem(section, name, problem))),
    }
    refused(&messages)
}

/// Refuses a new definition whose requests the address guard would refuse. One that is stored already may have such an address: the
/// operator may have changed the config since.
///
/// # Errors
/// What the address guard says, for the client.
pub(super) fn check_obstacles(obstacles: &[config::Problem]) -> Result<(), ToolChangeError> {
    if obstacles.is_empty() {
        return Ok(());
    }
    let messages: Vec<&str> = obstacles.iter().map(|problem| problem.message.as_str()).collect();
    let why = format!("{}; to allow it, add the host to `server.tool_hosts` of the config", messages.join("; "));
    Err(ToolChangeError::Refused(why))
}

/// A problem for a client of the API: without the file and the section of the key.
fn format_problem(section: Section, name: &str, problem: &Problem) -> String {
    let section = format!("{}.{name}.", section.key());
    let key = problem.key.strip_prefix(&section).unwrap_or_default();
    let message = problem.message.replace(&section, "");
    let prefix =
        if key.is_empty() || message.contains(&format!("`{key}`")) { String::new() } else { format!("`{key}`: ") };
    match &problem.help {
        Some(help) => format!("{prefix}{message} ({help})"),
        None => format!("{prefix}{message}"),
    }
}

/// Why a secret that refers to something on this machine is refused.
const SECRET_REFERENCE: &str =
    "a secret sent over the API must be a string; the server's variables and files are not read";

/// The keys that refer to a variable or file of this machine.
fn secret_references(definition: &Map<String, Value>) -> Vec<&'static str> {
    let has_reference = |key: &&str| {
        let members = definition.get(*key).and_then(Value::as_object).into_iter().flatten();
        members.filter(|(name, _)| *name != "token_fields").any(|(_, value)| value.is_object())
    };
    ["auth", "headers"].into_iter().filter(has_reference).collect()
}

/// The JSON pointer of a null in a value: TOML has no null.
fn find_null(value: &Value) -> Option<String> {
    let find_below = |key: &str, inner: &Value| find_null(inner).map(|rest| format!("/{key}{rest}"));
    match value {
        Value::Null => Some(String::new()),
        Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| find_below(&index.to_string(), item)),
        Value::Object(members) => members.iter().find_map(|(key, inner)| find_below(key, inner)),
        _ => None,
    }
}

/// The API writes `rateLimit`, a config `rate_limit`. A null in the API means that the key is not set.
fn to_config_keys(members: &Map<String, Value>) -> Map<String, Value> {
    let set = members.iter().filter(|(_, value)| !value.is_null());
    set.map(|(key, value)| match value {
        Value::Object(by_name) if TABLES_BY_NAME.contains(&key.as_str()) => {
            let convert =
                |value: &Value| value.as_object().map_or_else(|| value.clone(), |inner| to_config_keys(inner).into());
            (key.clone(), by_name.iter().map(|(name, value)| (name.clone(), convert(value))).collect())
        }
        Value::Object(inner) if !FREE_FORM_KEYS.contains(&key.as_str()) => {
            (to_snake_case(key), to_config_keys(inner).into())
        }
        other => (to_snake_case(key), other.clone()),
    })
    .collect()
}

fn to_snake_case(key: &str) -> String {
    key.chars()
        .flat_map(|c| c.is_ascii_uppercase().then_some('_').into_iter().chain([c.to_ascii_lowercase()]))
        .collect()
}

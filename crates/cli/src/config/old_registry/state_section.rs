//! `[state_config]` and `[business_config]` of a stateful tool.
//!
//! In: the keys of its file. Out: `state` of its section. Settings that apply to all tools together are named with their new place.

use std::collections::BTreeMap;

use toolhub::config::Size;

use super::{
    super::tree::{Node, Value},
    keys::{Keys, text, text_node, with_value},
    kinds::OldKind,
    tool_section::ToolReader,
    units::{self, NumberUnit, duration},
};

pub(super) fn read(reader: &mut ToolReader<'_, '_>) {
    let config = reader.keys.take("state_config");
    let business = reader.keys.take_table("business_config", reader.findings);
    let (injection, parameter) = (reader.keys.take("state_injection"), reader.keys.take("state_parameter_name"));
    let ttl = reader.keys.take("ttl");
    if reader.kind != OldKind::Stateful {
        let found = [config, injection, parameter].into_iter().flatten().next();
        if let Some(node) = found {
            let cookies = match reader.kind {
                OldKind::Rest => "; for cookies per thread write session = true",
                _ => "",
            };
            let text = format!(
                "tools of the kind `{}` have no state, so these settings were left out{cookies}",
                reader.kind.name()
            );
            reader.findings.note(&node.key_origin, text);
        }
        if let Some(ttl) = ttl {
            let text = "`ttl` was left out; `cache = { ttl = \"5m\" }` keeps the results of a read-only tool";
            reader.findings.note(&ttl.key_origin, text);
        }
        return;
    }
    let mut state = BTreeMap::new();
    let place = config.clone().or_else(|| ttl.clone()).or_else(|| injection.clone()).or_else(|| parameter.clone());
    match config.map(|node| (node.key_origin.clone(), node.value)) {
        Some((_, Value::Table(table))) => read_config(Keys(table), &mut state, reader),
        Some((origin, _)) => reader.findings.note(&origin, "`state_config` is not a table; it was left out"),
        None => {}
    }
    if let Some(business) = business {
        read_business(business, &mut state, reader);
    }
    if let Some(ttl) = ttl
        && let Some(ttl) = duration("ttl", &ttl, NumberUnit::Seconds, reader.findings)
    {
        state.entry("ttl".to_owned()).or_insert(ttl);
    }
    state.extend(injection.map(|node| ("inject".to_owned(), node)));
    state.extend(parameter.map(|node| ("parameter_name".to_owned(), node)));
    if let (false, Some(place)) = (state.is_empty(), place.or_else(|| state.values().next().cloned())) {
        reader.set("state", with_value(Value::Table(state), &place));
    }
}

fn read_config(mut keys: Keys, state: &mut BTreeMap<String, Node>, reader: &mut ToolReader<'_, '_>) {
    if let Some(manager) = keys.take("manager_type") {
        read_manager(&manager, state, reader);
    }
    if let Some(ttl) = keys.take("ttl")
        && let Some(ttl) = duration("state_config.ttl", &ttl, NumberUnit::Seconds, reader.findings)
    {
        state.insert("ttl".into(), ttl);
    }
    if let Some(cleanup) = keys.take("auto_cleanup").filter(|node| !matches!(node.value, Value::Bool(true))) {
        let text =
            "`auto_cleanup` was left out: what has expired is gone for every reader; set it for all tools in [state]";
        reader.findings.note(&cleanup.key_origin, text);
    }
    let shared = [
        "cleanup_interval",
        "session_timeout",
        "session_isolation",
        "max_states_per_session",
        "persistence_path",
        "persistence_format",
        "compression",
        "redis_url",
        "redis_prefix",
        "redis_db",
    ];
    for key in shared {
        if let Some(node) = keys.take(key) {
            let text = format!("`{key}` applies to all tools and was left out; set it in [state] of toolhub.toml");
            reader.findings.note(&node.key_origin, text);
        }
    }
    read_business(keys, state, reader);
}

/// Where the state is stored.
fn read_manager(node: &Node, state: &mut BTreeMap<String, Node>, reader: &mut ToolReader<'_, '_>) {
    let (manager, meaning) = match text(node) {
        Some("memory") => ("memory", None),
        Some("persistent") => ("persistent", Some("the state is stored on disk, with SQLite")),
        Some("session") => ("persistent", Some("the state is stored on disk and deleted with its thread")),
        Some("distributed") => {
            ("distributed", Some("the state is stored on the Redis server of `redis_url` in [state]"))
        }
        _ => {
            let help = "use memory, persistent, session or distributed";
            return reader.findings.report(&node.origin, "there is no `manager_type` of this name", help);
        }
    };
    if let Some(meaning) = meaning {
        let text = format!("`manager_type = \"{}\"`: {meaning}", text(node).unwrap_or_default());
        reader.findings.note(&node.key_origin, text);
    }
    if text(node) == Some("session") {
        state.insert("cleanup".into(), text_node("thread_end", node));
    }
    state.insert("manager_type".into(), text_node(manager, node));
}

/// The settings that keep their names.
fn read_business(mut keys: Keys, state: &mut BTreeMap<String, Node>, reader: &mut ToolReader<'_, '_>) {
    for key in ["max_history_size", "max_versions", "conflict_resolution"] {
        state.extend(keys.take(key).map(|node| (key.to_owned(), node)));
    }
    if let Some(size) = keys.take("max_state_size") {
        let size = match &size.value {
            Value::Integer(bytes) => match u64::try_from(*bytes) {
                Ok(bytes) => {
                    let text = String::from(Size(bytes));
                    reader
                        .findings
                        .note(&size.key_origin, format!("`max_state_size = {bytes}` is read as bytes: \"{text}\""));
                    text_node(text, &size)
                }
                Err(_) => size,
            },
            _ => size,
        };
        state.insert("max_state_size".into(), size);
    }
    for (key, node) in keys.0 {
        if !units::check_unknown(&format!("state_config.{key}"), &key, &node, reader.findings) {
            let text = format!("`{key}` of the state has no counterpart here and was left out");
            reader.findings.note(&node.key_origin, text);
        }
    }
}

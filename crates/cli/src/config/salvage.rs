//! Extracts the valid part of a config with problems, so that it can be resolved too.
//!
//! In: a config, and the problems of single values. Out: the config without the sections that have problems, so that the problems of
//! the rest are reported in the same run. A removed section that others refer to is replaced by a placeholder; an MCP server loses
//! only the keys that have problems. `None` if the rest may depend on what was removed.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    problem::Problem,
    tree::{Node, Path, Value},
};

/// Sections whose members are removed one by one.
const NAMED_SECTIONS: [&str; 4] = ["tools", MCP_SERVERS, "agents", "toolsets"];
const MCP_SERVERS: &str = "mcp_servers";
/// A list of tables, which are replaced one by one.
const ALERTS: &str = "alerts";

/// The key of a tool's dependencies.
const DEPENDENCIES: &str = "depends_on";

/// The valid part; `None` if it cannot be separated.
pub(super) fn retain_valid(tree: &Node, problems: &[Problem]) -> Option<Node> {
    let mut valid = tree.clone();
    let Value::Table(sections) = &mut valid.value else { return None };
    let mut seen = BTreeSet::new();
    for problem in problems.iter().filter(|problem| seen.insert(&problem.key)) {
        let mut keys = problem.key.split(['.', '[']);
        let (section, name) = (keys.next().unwrap_or_default(), keys.next());
        match (section, name) {
            // The problem concerns no single key; or other tools may depend on imported ones, and all tools on the defaults.
            ("" | "imports" | "defaults", _) => return None,
            // The rules for the bind address and for keys depend on each other.
            ("server" | "auth", _) => {
                sections.remove("server");
                sections.remove("auth");
            }
            (section, Some(name)) if NAMED_SECTIONS.contains(&section) => {
                match sections.get_mut(section).map(|node| &mut node.value) {
                    Some(Value::Table(members)) if section == MCP_SERVERS => {
                        let (path, member) = find_key(members, &problem.key[section.len()..])?;
                        remove_server_key(member, path);
                    }
                    Some(Value::Table(members)) => {
                        let member = members.get_mut(name)?;
                        let path = format!("{section}.{name}.{DEPENDENCIES}");
                        let is_valid = !problems.iter().any(|problem| problem.key.starts_with(&path));
                        let dependencies = dependencies_of(member).filter(|_| is_valid);
                        member.value = placeholder(section, member);
                        if let (Value::Table(keys), Some(dependencies)) = (&mut member.value, dependencies) {
                            keys.insert(DEPENDENCIES.to_owned(), dependencies);
                        }
                    }
                    _ => return None,
                }
            }
            ("llm", _) => {
                let model = sections.get_mut(section)?;
                model.value = placeholder(section, model);
            }
            (ALERTS, Some(index)) => match sections.get_mut(ALERTS).map(|node| &mut node.value) {
                Some(Value::List(targets)) => {
                    let index = index.trim_end_matches(']').parse::<usize>().ok()?;
                    retain_valid_target(targets.get_mut(index)?, index, keys.next());
                }
                _ => drop(sections.remove(ALERTS)),
            },
            (section, _) if NAMED_SECTIONS.contains(&section) => return None,
            (section, _) => drop(sections.remove(section)),
        }
    }
    Some(valid)
}

/// Removes an invalid key of an alert target, and those that depend on it. A key that it must have, or that is unknown here, makes all of
/// it a placeholder.
fn retain_valid_target(target: &mut Node, index: usize, key: Option<&str>) {
    let dependent: &[&str] = match key {
        Some("on") => &["on", "tool", "rate", "window", "minimum", "expires_within"],
        Some("format" | "name") => &[],
        Some(
            key @ ("tool" | "tenant" | "hold" | "repeat" | "resolved" | "rate" | "window" | "minimum"
            | "expires_within"),
        ) => &[key],
        _ => {
            target.value = placeholder(ALERTS, target);
            return retain_valid_target(target, index, Some("name"));
        }
    };
    let text = |text: String| Node::new(Value::Text(text), &target.origin);
    let replaced = match key {
        // No format but `json` needs other keys.
        Some("format") => Some(("format", text("slack".into()))),
        Some("name") => Some(("name", text(format!("target-{index}")))),
        _ => None,
    };
    let Value::Table(keys) = &mut target.value else { return };
    keys.retain(|key, _| !dependent.contains(&key.as_str()));
    keys.extend(replaced.map(|(key, node)| (key.to_owned(), node)));
}

/// The dependencies of a tool, which are checked although it has problems elsewhere.
fn dependencies_of(tool: &Node) -> Option<Node> {
    match &tool.value {
        Value::Table(keys) => keys.get(DEPENDENCIES).cloned(),
        _ => None,
    }
}

/// A valid value for a section.
fn placeholder(section: &str, node: &Node) -> Value {
    let text = |key: &str, text: &str| (key.to_owned(), Node::new(Value::Text(text.into()), &node.origin));
    let keys = match section {
        "tools" => vec![text("builtin", "clock")],
        MCP_SERVERS => vec![text("command", "toolhub")],
        ALERTS => vec![text("url", "https://alerts.example"), text("format", "slack")],
        "llm" => vec![text("provider", "scripted")],
        "toolsets" => vec![("tools".to_owned(), Node::new(Value::List(Vec::new()), &node.origin))],
        _ => Vec::new(),
    };
    Value::Table(BTreeMap::from_iter(keys))
}

/// Removes an invalid key of a server. It must have a program or an address, so these are replaced.
fn remove_server_key(server: &mut Node, path: &str) {
    let required = match (&mut server.value, path) {
        (Value::Table(keys), ".command") => keys.get_mut("command").map(|node| (node, "toolhub")),
        (Value::Table(keys), ".url") => keys.get_mut("url").map(|node| (node, "https://mcp.example/mcp")),
        _ => None,
    };
    if let Some((node, valid)) = required {
        node.value = Value::Text(valid.into());
    } else if !remove_key(server, path) {
        server.value = placeholder(MCP_SERVERS, server);
    }
}

/// Removes the value at a path, or the closest one around it. Returns whether there was one inside this node.
fn remove_key(node: &mut Node, path: &str) -> bool {
    let Value::Table(keys) = &mut node.value else { return false };
    let Some((rest, inner)) = find_key(keys, path) else { return false };
    if !remove_key(inner, rest) {
        let name = path[..path.len() - rest.len()].to_owned();
        keys.retain(|key, _| key_text(key) != name);
    }
    true
}

/// The value that a path begins with, and the rest of the path.
fn find_key<'a, 'p>(keys: &'a mut BTreeMap<String, Node>, path: &'p str) -> Option<(&'p str, &'a mut Node)> {
    keys.iter_mut().find_map(|(key, node)| {
        let rest = path.strip_prefix(&key_text(key))?;
        (rest.is_empty() || rest.starts_with(['.', '['])).then_some((rest, node))
    })
}

/// A key as it stands in the path of a problem.
fn key_text(key: &str) -> String {
    format!(".{}", Path::of([key]))
}

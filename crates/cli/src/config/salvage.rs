//! Extracts the valid part of a config with problems, so that it can be resolved too.
//!
//! In: a config, and the problems of single values. Out: the config without the sections that have problems, so that the problems of
//! the rest are reported in the same run. A removed section that others refer to is replaced by a placeholder. `None` if the
//! rest may depend on what was removed.

use std::collections::BTreeMap;

use super::{
    problem::Problem,
    tree::{Node, Value},
};

/// Sections whose members are removed one by one.
const NAMED_SECTIONS: [&str; 4] = ["tools", "mcp_servers", "agents", "toolsets"];

/// The key of a tool's dependencies.
const DEPENDENCIES: &str = "depends_on";

/// The valid part; `None` if it cannot be separated.
pub(super) fn retain_valid(tree: &Node, problems: &[Problem]) -> Option<Node> {
    let mut valid = tree.clone();
    let Value::Table(sections) = &mut valid.value else { return None };
    for problem in problems {
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
            (section, _) if NAMED_SECTIONS.contains(&section) => return None,
            (section, _) => drop(sections.remove(section)),
        }
    }
    Some(valid)
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
        "mcp_servers" => placeholder_server(node),
        "llm" => vec![text("provider", "scripted")],
        "toolsets" => vec![("tools".to_owned(), Node::new(Value::List(Vec::new()), &node.origin))],
        _ => Vec::new(),
    };
    Value::Table(BTreeMap::from_iter(keys))
}

/// A server with the prefix of the invalid one, because other tools may depend on its tools.
fn placeholder_server(node: &Node) -> Vec<(String, Node)> {
    let prefix = match &node.value {
        Value::Table(keys) => keys.get("prefix").filter(|prefix| matches!(prefix.value, Value::Text(_))).cloned(),
        _ => None,
    };
    let command = Node::new(Value::Text("toolhub".into()), &node.origin);
    let prefix = prefix.map(|prefix| ("prefix".to_owned(), prefix));
    [("command".to_owned(), command)].into_iter().chain(prefix).collect()
}

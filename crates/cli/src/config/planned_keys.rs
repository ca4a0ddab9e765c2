//! What other versions of the config know and this one does not do yet.
//!
//! In: a key or a value that nobody knows here. Out: a sentence, where the documentation or an old file may have promised it.
//! Whoever wrote it is told that it is not built, and what to use meanwhile; never that it was a typing error.

use std::collections::BTreeMap;

use super::tree::{KeySegment, Node, Path, Value};

/// Sections and keys; `*` stands for any name.
const KEYS: &[(&str, &str)] = &[
    ("mcp_servers", "MCP servers are not built yet; remove the section"),
    ("mcp_endpoint", "the MCP endpoint is not built yet; remove the section"),
    ("imports.mcp_json", "MCP servers are not built yet; remove the key"),
    ("imports.registry", "old registries are not read yet; write each tool as [tools.NAME]"),
    ("alerts", "alerts are not built yet; listen to the events of the HTTP API instead"),
    ("ui", "the dashboard is not built yet; remove the section"),
    ("server.cors_origins", "CORS is not built yet: pages of other sites cannot use the server; remove the key"),
    ("server.ui", "the dashboard is not built yet; remove the key"),
    ("telemetry.otlp_endpoint", "the export of traces is not built yet; `/metrics` has the numbers"),
    ("telemetry.capture_content", "the export of traces is not built yet, so no content is captured; remove the key"),
    ("telemetry.alerts", "alerts are not built yet; listen to the events of the HTTP API instead"),
    ("store.url", "Redis is not built yet; use backend = \"sqlite\" with a `path`"),
    ("store.key_prefix", "Redis is not built yet; remove the key"),
    ("state.redis_url", "Redis is not built yet; remove the key"),
    ("state.redis_prefix", "Redis is not built yet; remove the key"),
    ("state.redis_db", "Redis is not built yet; remove the key"),
    (
        "tools.*.state.ttl",
        "a time to live for one tool's state is not built yet; `ttl` in [state] holds for all states",
    ),
    ("tools.*.state.type", "tools keep business state, the only type that is built; remove the key"),
];

/// Keys of tools of kinds that are not built.
const KINDS: &[(&str, &[&str])] = &[("MCP", &["server", "tool", "server_name", "server_url"])];

/// Values, by the key they stand at.
const VALUES: &[(&str, &str, &str)] = &[
    ("store.backend", "redis", "Redis is not built yet; use \"sqlite\", or \"memory\" for a hub that forgets"),
    ("state.manager_type", "distributed", "Redis is not built yet; use \"persistent\", or leave the key out"),
    ("tools.*.state.manager_type", "distributed", "Redis is not built yet; use \"persistent\", or leave the key out"),
    ("tools.*.state.manager_type", "session", "sessions are for all tools or none; say it in [state]"),
    ("state.persistence_format", "pickle", "reading a pickle can run foreign code; use \"sqlite\" or \"json\""),
    ("tools.*.kind", "mcp", "MCP tools are not built yet; use a `builtin`, a `url` or a `command`"),
    ("tools.*.kind", "command", "a `command` is \"stateless\", or \"stateful\" if it lives in its thread"),
    (
        "tools.*.builtin",
        "weather",
        "`weather` is a request to the demo's own service, and only `toolhub demo` has that",
    ),
    ("tools.*.builtin", "echo", "`echo` comes with MCP tools, which are not built yet"),
];

/// What to tell about a key.
pub(crate) fn key_help(path: &Path) -> Option<String> {
    if let Some((_, text)) = KEYS.iter().find(|(pattern, _)| matches_pattern(pattern, path)) {
        return Some((*text).into());
    }
    let [KeySegment::Key(section), _, KeySegment::Key(last)] = path.0.as_slice() else { return None };
    let (kind, _) = KINDS.iter().find(|(_, keys)| section == "tools" && keys.contains(&last.as_str()))?;
    Some(format!("`{last}` is for {kind} tools, which are not built yet; use a `builtin`, a `url` or a `command`"))
}

/// What to tell about a value.
pub(crate) fn value_help(path: &Path, value: &str) -> Option<&'static str> {
    let found = VALUES.iter().find(|(pattern, known, _)| *known == value && matches_pattern(pattern, path));
    found.map(|(_, _, text)| *text)
}

/// Whether one of the keys of a table is for what is not built, so that the table cannot be whole.
pub(crate) fn contains_planned(path: &Path, keys: &BTreeMap<String, Node>) -> bool {
    keys.iter().any(|(name, node)| {
        let path = path.key(name);
        let word = match &node.value {
            Value::Text(text) => value_help(&path, text),
            _ => None,
        };
        word.is_some() || key_help(&path).is_some()
    })
}

fn matches_pattern(pattern: &str, path: &Path) -> bool {
    let wanted: Vec<&str> = pattern.split('.').collect();
    let same = |(wanted, step): (&&str, &KeySegment)| match step {
        KeySegment::Key(key) => *wanted == "*" || wanted == key,
        KeySegment::Index(_) => false,
    };
    wanted.len() == path.0.len() && wanted.iter().zip(&path.0).all(same)
}

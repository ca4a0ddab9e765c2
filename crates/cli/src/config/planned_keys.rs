//! Keys and values that are documented or planned but not supported yet.
//!
//! In: an unknown key or value. Out: a hint, if it is planned. The user learns that it is not supported yet and what to use
//! instead; it is never reported as a misspelling.

use std::collections::BTreeMap;

use super::tree::{KeySegment, Node, Path, Value};

/// Sections and keys; `*` matches any name.
const KEYS: &[(&str, &str)] = &[
    ("server.cors_origins", "CORS is not supported yet: pages of other origins cannot use the server; remove the key"),
    ("telemetry.otlp_endpoint", "trace export is not supported yet; use `/metrics`"),
    ("telemetry.capture_content", "trace export is not supported yet, so no content is captured; remove the key"),
    ("telemetry.alerts", "alert targets are sections of their own: write [[alerts]]"),
    ("tools.*.state.type", "business state is the only supported type; remove the key"),
];

/// Values, by key.
const VALUES: &[(&str, &str, &str)] = &[
    ("tools.*.state.manager_type", "session", "sessions apply to all tools or none; set manager_type in [state]"),
    ("state.persistence_format", "pickle", "loading a pickle can execute arbitrary code; use \"sqlite\" or \"json\""),
    ("tools.*.kind", "command", "a `command` is \"stateless\", or \"stateful\" if one process serves a whole thread"),
    ("tools.*.builtin", "weather", "`weather` calls the demo's own HTTP service, which only `toolhub demo` starts"),
    (
        "tools.*.builtin",
        "echo",
        "`echo` comes from the MCP server of `toolhub demo`; add a server as [mcp_servers.NAME]",
    ),
];

/// The hint for a planned key.
pub(crate) fn key_help(path: &Path) -> Option<String> {
    let found = KEYS.iter().find(|(pattern, _)| matches_pattern(pattern, path));
    found.map(|(_, text)| (*text).into())
}

/// The hint for a planned value.
pub(crate) fn value_help(path: &Path, value: &str) -> Option<&'static str> {
    let found = VALUES.iter().find(|(pattern, known, _)| *known == value && matches_pattern(pattern, path));
    found.map(|(_, _, text)| *text)
}

/// Whether one of the keys of a table is planned, so that other keys of the table may be missing.
pub(crate) fn contains_planned(path: &Path, keys: &BTreeMap<String, Node>) -> bool {
    keys.iter().any(|(name, node)| {
        let path = path.key(name);
        let hint = match &node.value {
            Value::Text(text) => value_help(&path, text),
            _ => None,
        };
        hint.is_some() || key_help(&path).is_some()
    })
}

/// Whether a path has these keys; `*` matches any name.
pub(crate) fn matches_pattern(pattern: &str, path: &Path) -> bool {
    let keys: Vec<&str> = pattern.split('.').collect();
    let matches = |(expected, segment): (&&str, &KeySegment)| match segment {
        KeySegment::Key(key) => *expected == "*" || expected == key,
        KeySegment::Index(_) => false,
    };
    keys.len() == path.0.len() && keys.iter().zip(&path.0).all(matches)
}

//! Keys that were renamed or removed, so that the error for an old key says what to do.
//!
//! In: the path of an unknown key. Out: the path of its successor, or why it has none.

use super::{planned_keys::matches_pattern, tree::Path};

/// The path of an old key, and the name of its successor in the same section.
const RENAMED: &[(&str, &str)] = &[
    ("scheduler.blocking_places", "max_blocking_threads"),
    ("scheduler.queue_in_all", "max_queued"),
    ("scheduler.queue_per_tool", "max_queued_per_tool"),
    ("scheduler.run_calls", "max_calls_per_run"),
    ("scheduler.run_same_call", "max_repeats_per_run"),
    ("status.longest", "max_failure_duration"),
    ("threads.instances_in_all", "max_instances"),
];

/// The path of a key that has no effect, and why; `*` matches any name.
const REMOVED: &[(&str, &str)] = &[
    ("server.decompressed_limit", "the server refuses compressed request bodies"),
    ("mcp_servers.*.connection.max_overflow", "set `max_concurrency` of the server instead"),
    ("mcp_servers.*.connection.pool_timeout", "set `max_concurrency` and `queue_timeout` of the server instead"),
    ("mcp_servers.*.connection.timeout", "set `timeout` of the server instead"),
    ("mcp_servers.*.connection.read_timeout", "set `timeout` or `idle_timeout` of the server instead"),
    ("mcp_servers.*.connection.retry_attempts", RETRY_OF_CALLS),
    ("mcp_servers.*.connection.retry_backoff", RETRY_OF_CALLS),
    ("mcp_servers.*.connection.retry_delay", RETRY_OF_CALLS),
    ("mcp_servers.*.connection.retry_jitter", RETRY_OF_CALLS),
];
const RETRY_OF_CALLS: &str = "set `retry` of the server instead";

/// Why this key was removed.
pub(crate) fn removal_reason(path: &Path) -> Option<&'static str> {
    REMOVED.iter().find(|(pattern, _)| matches_pattern(pattern, path)).map(|(_, reason)| *reason)
}

/// The key that replaces this one.
pub(crate) fn successor(path: &Path) -> Option<Path> {
    let old = path.to_string();
    let (_, new) = RENAMED.iter().find(|(name, _)| *name == old)?;
    let section = Path(path.0[..path.0.len() - 1].to_vec());
    Some(section.key(new))
}

#[cfg(test)]
mod tests {
    use super::{super::shape::Shape, *};

    #[test]
    fn every_successor_is_a_key_and_no_old_name_is() {
        let config = Shape::of_config();
        for (pattern, _) in REMOVED {
            let (section, old) = pattern.rsplit_once('.').unwrap();
            let table = section.split('.').fold(&config, |shape, key| {
                let table = shape.table().unwrap();
                if key == "*" { table.additional.as_deref().unwrap() } else { &table.keys[key].shape }
            });
            assert!(!table.table().unwrap().keys.contains_key(old), "{pattern}");
        }
        for (old, new) in RENAMED {
            let (section, old) = old.split_once('.').unwrap();
            let keys = &config.table().unwrap().keys[section].shape.table().unwrap().keys;
            assert!(keys.contains_key(*new) && !keys.contains_key(old), "{section}.{old}");
        }
    }
}

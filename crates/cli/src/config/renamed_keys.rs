//! Keys that were renamed or removed, so that the error for an old key says what to do.
//!
//! In: the path of an unknown key. Out: the path of its successor, or why it has none.

use super::tree::Path;

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

/// The path of a key that has no effect, and why.
const REMOVED: &[(&str, &str)] = &[("server.decompressed_limit", "the server refuses compressed request bodies")];

/// Why this key was removed.
pub(crate) fn removal_reason(path: &Path) -> Option<&'static str> {
    let old = path.to_string();
    REMOVED.iter().find(|(name, _)| *name == old).map(|(_, reason)| *reason)
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
        let removed = REMOVED.iter().filter_map(|(old, _)| old.split_once('.'));
        for (section, old) in removed {
            let keys = &config.table().unwrap().keys[section].shape.table().unwrap().keys;
            assert!(!keys.contains_key(old), "{section}.{old}");
        }
        for (old, new) in RENAMED {
            let (section, old) = old.split_once('.').unwrap();
            let keys = &config.table().unwrap().keys[section].shape.table().unwrap().keys;
            assert!(keys.contains_key(*new) && !keys.contains_key(old), "{section}.{old}");
        }
    }
}

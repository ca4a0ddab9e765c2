//! Keys that were renamed, so that the error for an old key names the new one.
//!
//! In: the path of an unknown key. Out: the path of its successor, if it has one.

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
        for (old, new) in RENAMED {
            let (section, old) = old.split_once('.').unwrap();
            let keys = &config.table().unwrap().keys[section].shape.table().unwrap().keys;
            assert!(keys.contains_key(*new) && !keys.contains_key(old), "{section}.{old}");
        }
    }
}

//! Finds tools that block a worker of the async runtime.
//!
//! In: the polls of all tools that run at the time of each check. Out: the tools of which one poll has run since the check
//! before. The caller decides how often to check, on a thread that no tool can block.

use std::collections::HashMap;

use super::Meter;
use toolhub_types::tool::ToolName;

/// What the last check found. Pass it to every [`ToolHub::blocking_polls`](crate::ToolHub::blocking_polls).
#[derive(Debug, Default)]
pub struct PollWatch {
    /// The state of the polls that ran at the last check, by tool and shard, and whether the tool was reported for it.
    running: HashMap<(ToolName, usize), (u64, bool)>,
}

impl PollWatch {
    /// The tools of which one poll has run since the last check; each is returned once per poll.
    pub(crate) fn check<'a>(&mut self, tools: impl Iterator<Item = (&'a ToolName, &'a Meter)>) -> Vec<ToolName> {
        let before = std::mem::take(&mut self.running);
        let mut blocking = Vec::new();
        for (tool, meter) in tools {
            for (shard, polls) in meter.running_polls() {
                let key = (tool.clone(), shard);
                let is_same = before.get(&key).filter(|(earlier, _)| *earlier == polls);
                if is_same.is_some_and(|(_, reported)| !reported) && !blocking.contains(tool) {
                    blocking.push(tool.clone());
                }
                self.running.insert(key, (polls, is_same.is_some()));
            }
        }
        blocking
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Polling, *};

    #[test]
    fn only_a_poll_that_outlasts_two_checks_is_found_and_found_once() {
        let (tool, meter) = (ToolName::new("busy").unwrap(), Meter::default());
        let mut watch = PollWatch::default();
        let mut check = || watch.check([(&tool, &meter)].into_iter());
        for _ in 0..3 {
            let _short = Polling::begin(&meter);
            assert!(check().is_empty());
        }
        assert!(check().is_empty());
        let long = Polling::begin(&meter);
        let found = [check(), check(), check()];
        assert_eq!(found, [vec![], vec![tool.clone()], vec![]]);
        drop(long);
        let _next = Polling::begin(&meter);
        assert_eq!([check(), check()], [vec![], vec![tool.clone()]]);
    }
}

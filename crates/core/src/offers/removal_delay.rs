//! How long a tool must be unavailable before the holders of a list hear of it.

use std::{collections::BTreeMap, time::Duration};

use toolhub_storage::clock::{self, Instant};
use toolhub_types::tool::ToolName;

/// Since when tools of a list are unavailable; `None` for those that were due.
#[derive(Debug, Default)]
pub(crate) struct RemovalDelay(BTreeMap<ToolName, Option<Instant>>);

impl RemovalDelay {
    /// Of the tools that are unavailable now, sorted by name, those that have been so for `delay`; and when the next of the others
    /// will have been. A tool that is available in between starts anew. `changed_at`: when availability changed last, so that a tool
    /// that is newly unavailable has been so since then at the latest.
    pub(crate) fn due(
        &mut self,
        mut removed: Vec<ToolName>,
        (changed_at, now): (Instant, Instant),
        delay: Duration,
    ) -> (Vec<ToolName>, Option<Instant>) {
        self.0.retain(|tool, _| removed.binary_search(tool).is_ok());
        let mut next: Option<Instant> = None;
        removed.retain(|tool| {
            let since = self.0.entry(tool.clone()).or_insert(Some(changed_at.min(now)));
            let due = since.map(|since| clock::deadline_after(since, delay)).filter(|due| *due > now);
            match due {
                Some(due) => next = Some(next.map_or(due, |next| next.min(due))),
                None => *since = None,
            }
            due.is_none()
        });
        (removed, next)
    }
}

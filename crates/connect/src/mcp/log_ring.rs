//! The last log lines of a server: what it wrote to stderr, and the log messages it sent.
//!
//! In: lines without secrets. Out: the last [`MAX_LINES`], each with its time. Outlives connections, so that the lines of a program
//! that exited can still be read.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use toolhub_core::clock::{Clock, Timestamp};

/// How many lines are kept, and how many bytes of each.
pub(crate) const MAX_LINES: usize = 1_000;
const MAX_LINE_BYTES: usize = 1_000;

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogLine {
    pub(crate) at: Timestamp,
    pub(crate) text: String,
}

pub(crate) struct LogRing {
    clock: Arc<dyn Clock>,
    lines: Mutex<VecDeque<LogLine>>,
}

impl LogRing {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, lines: Mutex::default() })
    }

    pub(crate) fn push(&self, mut text: String) {
        text.truncate(text.floor_char_boundary(MAX_LINE_BYTES));
        let line = LogLine { at: self.clock.now(), text };
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == MAX_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The last lines, oldest first.
    pub(crate) fn last(&self, count: usize) -> Vec<LogLine> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().skip(lines.len().saturating_sub(count)).cloned().collect()
    }
}

impl std::fmt::Debug for LogRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogRing").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use toolhub_core::clock::SystemClock;

    use super::*;

    #[test]
    fn the_last_thousand_lines_are_kept_and_long_ones_are_cut() {
        let ring = LogRing::new(Arc::new(SystemClock));
        (0..5_000).for_each(|number| ring.push(number.to_string()));
        ring.push("é".repeat(2_000));
        let texts: Vec<String> = ring.last(usize::MAX).into_iter().map(|line| line.text).collect();
        assert_eq!((texts.len(), texts[0].as_str(), texts[999].len()), (MAX_LINES, "4001", MAX_LINE_BYTES));
        assert_eq!(ring.last(2)[0].text, "4999");
    }
}

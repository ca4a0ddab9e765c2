//! Decides by size where a page of a list ends.
//!
//! In: the rows of a list, one after the other. Out: whether the page has room for more. A list of large records would
//! otherwise take as much memory as its records times its page size.

use crate::json;

/// The size of the rows at which a page of a list ends, in bytes.
pub const LIST_PAGE_BYTES: usize = 4 << 20;
/// The memory of the parsed rows at which a page of a list ends, in bytes.
const LIST_PAGE_MEMORY: usize = 32 << 20;

/// The room that is left on a page. The first row always fits.
#[derive(Debug, Default)]
pub struct PageBudget {
    bytes: usize,
    memory: usize,
}

impl PageBudget {
    /// Whether the page ends here.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.bytes >= LIST_PAGE_BYTES || self.memory >= LIST_PAGE_MEMORY
    }

    /// Counts a row with this JSON text.
    pub fn spend(&mut self, text: &[u8]) {
        self.bytes += text.len();
        self.memory += json::parsed_bytes(text);
    }

    /// Counts a record that has no row, by its memory.
    pub fn spend_memory(&mut self, bytes: usize) {
        self.memory += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_by_the_size_of_its_rows_and_by_that_of_their_values() {
        let rows = |text: &str| {
            let (mut budget, mut rows) = (PageBudget::default(), 0);
            while !budget.is_spent() {
                budget.spend(text.as_bytes());
                rows += 1;
            }
            rows
        };
        assert_eq!(rows(&format!("\"{}\"", "x".repeat(LIST_PAGE_BYTES))), 1);
        assert_eq!(rows(&format!("\"{}\"", "x".repeat(LIST_PAGE_BYTES / 4))), 4);
        let wide = format!("[{}]", vec![r#"{"a":0}"#; 20_000].join(","));
        assert!((2..=3).contains(&rows(&wide)), "{} bytes each", wide.len());
    }
}

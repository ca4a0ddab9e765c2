//! Blocks of row ids: the unit of the term index.
//!
//! A block is all ids that share their first characters. The index stores which blocks of a tenant have rows with a term, not
//! each row: under load many rows share a block, so that most writes find their blocks indexed already, and a reader checks
//! the few rows of a block itself. Call ids begin with a timestamp, so a block holds the calls of 16 milliseconds.

/// Length of a block's name: `call_`, then 11 of the 12 digits of a timestamp in milliseconds. The schema has the same number.
const BLOCK_CHARS: usize = 17;

/// The block of an id: its first characters, or the id itself if it is shorter.
pub(super) fn block_of(id: &str) -> &str {
    id.char_indices().nth(BLOCK_CHARS).map_or(id, |(end, _)| &id[..end])
}

/// Whether the block holds more ids than the one that is its name.
pub(super) fn has_many_ids(block: &str) -> bool {
    block.chars().count() == BLOCK_CHARS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_of_a_block_share_their_first_characters() {
        assert_eq!(block_of("call_0199a5c0-1e240-7000"), "call_0199a5c0-1e2");
        for (id, many) in [("", false), ("a", false), ("ü".repeat(16).as_str(), false), ("ü".repeat(17).as_str(), true)]
        {
            assert_eq!((block_of(id), has_many_ids(id)), (id, many));
        }
        assert_eq!(block_of(&"ü".repeat(18)), "ü".repeat(17));
    }
}

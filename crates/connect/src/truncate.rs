//! Truncates texts of foreign sources that models or people read.

/// Truncates a text to a number of characters, at the end of a word.
pub(crate) fn truncate(text: &str, max_chars: usize) -> String {
    let text = text.trim();
    let Some((end, _)) = text.char_indices().nth(max_chars) else {
        return text.to_owned();
    };
    if max_chars == 0 {
        return String::new();
    }
    let prefix = &text[..end];
    let prefix = prefix.rfind(char::is_whitespace).map_or(prefix, |space| &prefix[..space]);
    format!("{}…", prefix.trim_end())
}

//! Characters that hide text from people or show it in another order.
//!
//! In: text that a foreign source wrote. Out: the same text without such characters. A model reads what a person does not see.

/// Whether a character is a control character, invisible, or changes the writing direction. Line ends, tabs and joiners, which some
/// scripts and emoji need, are not.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        // Soft hyphen, grapheme joiner, zero-width space, word joiner and other invisible operators, byte order mark.
        '\u{ad}' | '\u{34f}' | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}' => true,
        // Letters without a shape, and annotations of text and of music.
        '\u{115f}' | '\u{1160}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}' => true,
        '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' => true,
        // Direction of text.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}' => true,
        // Tags and variation selectors, which can spell a whole text. Emoji need the last two of the first selectors.
        '\u{fe00}'..='\u{fe0d}' | '\u{e0000}'..='\u{e01ef}' => true,
        c => c.is_control(),
    }
}

/// Whether a character must be escaped where people decide by what they see: hidden characters, and those of a text that do not
/// show as themselves.
#[must_use]
pub fn needs_escape(c: char) -> bool {
    is_hidden(c)
        || matches!(c, '\n' | '\t' | '\u{200c}' | '\u{200d}' | '\u{2028}' | '\u{2029}' | '\u{fe0e}' | '\u{fe0f}')
}

/// The text on one line, with an escape such as `\u{202e}` for each character that people do not see as itself.
#[must_use]
pub fn escape_hidden(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            c if needs_escape(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

/// The text without hidden characters.
#[must_use]
pub fn strip_hidden(text: &str) -> String {
    text.chars().filter(|c| !is_hidden(*c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_go_and_scripts_and_emoji_stay() {
        let tags: String = "run".chars().filter_map(|c| char::from_u32(0xe0000 + u32::from(c))).collect();
        for (text, visible) in [
            ("a\x1b[31mred\x1b]0;title\x07\r\n\tb\u{9b}2J ● ok\0", "a[31mred]0;title\n\tb2J ● ok"),
            ("txt.\u{202e}exe\u{2066}\u{200f}", "txt.exe"),
            (&format!("read{tags}\u{e0100}\u{e0fff}"), "read\u{e0fff}"),
            ("pass\u{200b}word\u{feff}\u{ad}", "password"),
            (
                "a\u{fe00}\u{fe0d}b\u{34f}\u{115f}\u{1160}\u{3164}c\u{ffa0}\u{2800}\u{fff9}\u{fffb}\u{1d173}\u{1d17a}",
                "abc",
            ),
            ("天气 👩\u{200d}🚀 می\u{200c}خواهم ❤\u{fe0f}", "天气 👩\u{200d}🚀 می\u{200c}خواهم ❤\u{fe0f}"),
        ] {
            assert_eq!(strip_hidden(text), visible);
        }
    }

    #[test]
    fn hidden_characters_show_as_escapes() {
        assert_eq!(escape_hidden("a\nb\t\x1b[31m\u{202e}\u{e0041} ü"), r"a\nb\u{9}\u{1b}[31m\u{202e}\u{e0041} ü");
        assert_eq!(escape_hidden("a\u{fe0f}\u{fe00}\u{3164}"), r"a\u{fe0f}\u{fe00}\u{3164}");
    }
}

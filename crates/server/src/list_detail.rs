//! Shortens the members of listed items; the route of a single item shows all of them.
//!
//! In: a member of an item. Out: the same if it is short, else its beginning or its size.

use serde_json::{Value, json};
use toolhub_core::Content;

/// Longest member of a listed item, in bytes.
const MAX_MEMBER_BYTES: usize = 2 << 10;

/// Replaces a long value by its size.
pub(crate) fn shorten_value(value: &mut Value) {
    let bytes = value.to_string().len();
    if bytes > MAX_MEMBER_BYTES {
        *value = json!({ "omittedBytes": bytes });
    }
}

/// Truncates a long text.
pub(crate) fn shorten_text(text: &mut String) {
    let end = text.floor_char_boundary(MAX_MEMBER_BYTES);
    if end < text.len() {
        text.truncate(end);
        text.push('…');
    }
}

/// Truncates the texts of content, and leaves out long binary blocks.
pub(crate) fn shorten_content(content: &mut Vec<Content>) {
    content.retain_mut(|piece| {
        piece.texts_mut().into_iter().for_each(shorten_text);
        piece.model_text().is_some() || piece.text_bytes() <= MAX_MEMBER_BYTES
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_is_shortened_and_the_rest_stays() {
        let (mut short, mut long) = (json!({"a": "x".repeat(2_000)}), json!({"a": "ü".repeat(2_000)}));
        shorten_value(&mut short);
        shorten_value(&mut long);
        assert_eq!((short["a"].as_str().map(str::len), long), (Some(2_000), json!({"omittedBytes": 4_008})));
        let mut text = format!("x{}", "ü".repeat(2_000));
        shorten_text(&mut text);
        assert_eq!((text.len(), text.ends_with("ü…")), (2_047 + '…'.len_utf8(), true));
        let image = Content::Image { data: "A".repeat(9_000), mime_type: "image/png".into() };
        let mut content = vec![Content::text("y".repeat(9_000)), image, Content::text("z")];
        shorten_content(&mut content);
        assert_eq!((content.len(), &content[1]), (2, &Content::text("z")));
    }
}

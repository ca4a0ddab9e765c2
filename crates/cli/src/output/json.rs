//! Indents JSON for people.
//!
//! In: JSON text. Out: the same text, indented. Order and number formats stay as they are, because programs compare them.

/// Adds line ends and indents. Text that is not JSON is returned unchanged.
pub(crate) fn indent_json(text: &str) -> String {
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() * 2);
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if quoted {
            out.push(c);
            quoted = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '"' => {
                quoted = true;
                out.push('"');
            }
            '{' | '[' => {
                out.push(c);
                while chars.next_if(char::is_ascii_whitespace).is_some() {}
                match chars.next_if(|next| matches!(next, '}' | ']')) {
                    Some(close) => out.push(close),
                    None => {
                        depth += 1;
                        push_newline(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                push_newline(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(',');
                push_newline(&mut out, depth);
            }
            ':' => out.push_str(": "),
            space if space.is_ascii_whitespace() => {}
            other => out.push(other),
        }
    }
    out
}

fn push_newline(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_space_between_words_changes() {
        let given = r#"{"b":[1.50,{}, [ ]],"a":"x\",{: ","c":{"d":null}}"#;
        let expected = "{\n  \"b\": [\n    1.50,\n    {},\n    []\n  ],\n  \"a\": \"x\\\",{: \",\n  \"c\": {\n    \"d\": null\n  }\n}";
        assert_eq!(indent_json(given), expected);
        assert_eq!(indent_json(expected), expected);
        assert_eq!(indent_json("\"\\\\\""), "\"\\\\\"");
        assert_eq!(indent_json("not json"), "not json");
    }
}

//! JSON for programs that a person can read as well.
//!
//! In: JSON text. Out: the same text, indented. Order and numbers stay as they were written, because programs compare them.

/// The text with line ends and indents. What is no JSON comes back as it is.
pub(crate) fn indent_json(text: &str) -> String {
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() * 2);
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if quoted {
            out.push(letter);
            quoted = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
            continue;
        }
        match letter {
            '"' => {
                quoted = true;
                out.push('"');
            }
            '{' | '[' => {
                out.push(letter);
                while letters.next_if(char::is_ascii_whitespace).is_some() {}
                match letters.next_if(|next| matches!(next, '}' | ']')) {
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
                out.push(letter);
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

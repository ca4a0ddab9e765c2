//! JSON with comments and trailing commas, as VS Code writes it.
//!
//! In: such a text. Out: plain JSON, with spaces in the place of what is left out, so that lines and columns of errors stay right.

pub(crate) fn to_json(text: &str) -> String {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut json = String::with_capacity(text.len());
    // The place of a comma after which only spaces and comments have come.
    let mut comma = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('/', Some('/')) => {
                json.push(' ');
                while chars.next_if(|c| *c != '\n').is_some() {
                    json.push(' ');
                }
            }
            ('/', Some('*')) => {
                json.push(' ');
                let mut last = ' ';
                // The star that begins the comment does not end it.
                json.extend(chars.next().map(|_| ' '));
                for c in chars.by_ref() {
                    json.push(if c == '\n' { '\n' } else { ' ' });
                    if (last, c) == ('*', '/') {
                        break;
                    }
                    last = c;
                }
            }
            ('"', _) => {
                json.push('"');
                comma = None;
                let mut is_escaped = false;
                for c in chars.by_ref() {
                    json.push(c);
                    if c == '"' && !is_escaped {
                        break;
                    }
                    is_escaped = c == '\\' && !is_escaped;
                }
            }
            (',', _) => {
                comma = Some(json.len());
                json.push(',');
            }
            ('}' | ']', _) => {
                if let Some(at) = comma.take() {
                    json.replace_range(at..=at, " ");
                }
                json.push(c);
            }
            (c, _) => {
                comma = comma.filter(|_| c.is_whitespace());
                json.push(c);
            }
        }
    }
    json
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn comments_and_trailing_commas_are_left_out_and_texts_stay() {
        let text = "\u{feff}// first\n{\"a\": [1, 2, /* two, */ ], // }\n\"url\": \"https://x/*,]\\\\\", \"b\": {\"c\": \",}\\\"//\",},\n/**/}";
        let parsed: Value = serde_json::from_str(&to_json(text)).unwrap();
        assert_eq!(parsed, json!({"a": [1, 2], "url": "https://x/*,]\\", "b": {"c": ",}\"//"}}));
    }

    #[test]
    fn mistakes_stay_mistakes_at_their_place() {
        for text in ["[1,,2]", "[,]x", "{\"a\": 1 /* open", "{\"a\"", "/", "\"a"] {
            assert!(serde_json::from_str::<Value>(&to_json(text)).is_err(), "{text}");
        }
        let error = serde_json::from_str::<Value>(&to_json("{ // one\n/* two\n*/ \"a\": x}")).unwrap_err();
        assert_eq!((error.line(), error.column()), (3, 9));
    }
}

//! Whether a URI fits a template (RFC 6570), loosely: a variable stands for any text without `/`, one with an operator for any text.

/// Longer URIs and templates fit nothing.
const MAX_BYTES: usize = 4096;

pub(super) fn matches(template: &str, uri: &str) -> bool {
    if template.len() > MAX_BYTES || uri.len() > MAX_BYTES {
        return false;
    }
    let uri = uri.as_bytes();
    // Whether the parts so far can end at each position.
    let mut ends = vec![false; uri.len() + 1];
    ends[0] = true;
    let mut rest = template;
    while !rest.is_empty() {
        let (literal, expression, after) = next_part(rest);
        ends = after_literal(&ends, uri, literal.as_bytes());
        if let Some(expression) = expression {
            let takes_slashes = expression.starts_with(['+', '#', '.', '/', ';', '?', '&']);
            ends = after_variable(&ends, uri, takes_slashes);
        }
        rest = after;
    }
    ends[uri.len()]
}

/// The length of the fixed text of a template.
pub(super) fn literal_length(template: &str) -> usize {
    let (mut length, mut rest) = (0, template);
    while !rest.is_empty() {
        let (literal, _, after) = next_part(rest);
        length += literal.len();
        rest = after;
    }
    length
}

/// The text before the next expression, the expression, and what follows.
fn next_part(template: &str) -> (&str, Option<&str>, &str) {
    let open = template.find('{');
    let close = open.and_then(|open| template[open..].find('}').map(|length| (open, open + length)));
    match close {
        Some((open, close)) => (&template[..open], Some(&template[open + 1..close]), &template[close + 1..]),
        None => (template, None, ""),
    }
}

fn after_literal(ends: &[bool], uri: &[u8], literal: &[u8]) -> Vec<bool> {
    let mut next = vec![false; ends.len()];
    for (at, _) in ends.iter().enumerate().filter(|(_, is_end)| **is_end) {
        if uri[at..].starts_with(literal) {
            next[at + literal.len()] = true;
        }
    }
    next
}

fn after_variable(ends: &[bool], uri: &[u8], takes_slashes: bool) -> Vec<bool> {
    let mut next = vec![false; ends.len()];
    let mut is_inside = false;
    for at in 0..ends.len() {
        if takes_slashes {
            // Also an empty text.
            is_inside |= ends[at];
        } else {
            is_inside = at > 0 && (is_inside || ends[at - 1]) && uri[at - 1] != b'/';
        }
        next[at] = is_inside;
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(template: &str, uri: &str, expected: bool) {
        assert_eq!(matches(template, uri), expected, "{template} {uri}");
    }

    #[test]
    fn a_variable_stands_for_one_segment_and_one_with_an_operator_for_many() {
        check("test://{id}/data", "test://7/data", true);
        check("test://{id}/data", "test:///data", false);
        check("test://{id}/data", "test://7/8/data", false);
        check("test://{id}/data", "test://7/data/", false);
        check("file://{+path}", "file:///a/b.txt", true);
        check("search{?q,page}", "search", true);
        check("search{?q,page}", "search?q=a/b", true);
        check("a{x}b{y}b", "aab-bb", true);
        check("plain", "plain", true);
        check("plain", "plane", false);
        check("{a}é{b}", "xéy", true);
        check("broken{", "broken{", true);
        check("", "", true);
    }

    #[test]
    fn the_length_of_the_fixed_text_leaves_out_expressions() {
        for (template, length) in [("", 0), ("{x}", 0), ("doc://{id}/a{?q}", 8), ("plain", 5), ("broken{", 7)] {
            assert_eq!(literal_length(template), length, "{template}");
        }
    }

    #[test]
    fn a_hostile_template_takes_no_time() {
        let template = "{a}a".repeat(1_000);
        check(&template, &"a".repeat(4_000), true);
        check(&template, &format!("{}b", "a".repeat(4_000)), false);
    }
}

//! Differences of definitions as lines for people who decide about them.
//!
//! In: changes of the API, with texts that a foreign server wrote. Out: every changed line, marked `-` or `+`, however long it is;
//! long unchanged parts are replaced by their length. Hidden characters show as escapes, and no text can look like a marker.

use anstyle::{AnsiColor, Style};
use serde_json::Value;
use toolhub::hidden_chars::escape_hidden;
use unicode_width::UnicodeWidthChar as _;

use crate::{commands::paging::pointer_text, output::Printer};

const REMOVED: Style = AnsiColor::Red.on_default();
const ADDED: Style = AnsiColor::Green.on_default();
/// How many unchanged lines, and how many unchanged characters of a long line, are shown around a difference.
const CONTEXT_LINES: usize = 2;
const CONTEXT_CHARS: usize = 40;
/// Longest unchanged line that is shown.
const MAX_SAME_CHARS: usize = 200;
/// Most pairs of lines that are compared; in larger texts everything between the first and the last difference is shown as changed.
const MAX_COMPARED: usize = 1_000_000;

/// Tools that wait for approval, and how they differ from what was approved.
pub(super) fn render_changes(changes: &[Value], printer: &Printer) -> String {
    let mut page = Page { lines: Vec::new(), cells: printer.width.map(|width| width.saturating_sub(4).max(10)) };
    for change in changes {
        let kind = if change["isNew"] == true { "new" } else { "changed" };
        page.add_heading("", &pointer_text(change, "/name"), &format!("  {kind}"));
        for difference in change["differences"].as_array().into_iter().flatten() {
            page.add_difference(&pointer_text(difference, "/path"), difference.get("before"), difference.get("after"));
        }
    }
    page.lines.join("\n")
}

/// A run of lines that both texts have, or of different ones.
enum Part<'a> {
    Same(&'a [&'a str]),
    Changed { old: &'a [&'a str], new: &'a [&'a str] },
}

struct Page {
    lines: Vec<String>,
    /// The width of a text beside its marker.
    cells: Option<usize>,
}

impl Page {
    fn add_difference(&mut self, path: &str, old: Option<&Value>, new: Option<&Value>) {
        let kind = match (old, new) {
            (None, _) => "added",
            (_, None) => "removed",
            _ => "changed",
        };
        self.add_heading("  ", path, &format!(" {kind}"));
        let is_text = [old, new].into_iter().flatten().all(Value::is_string);
        let show = |value: Option<&Value>| match value {
            Some(Value::String(text)) if is_text => text.clone(),
            Some(value) => serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string()),
            None => String::new(),
        };
        let texts = (show(old), show(new));
        let split = |text, value: Option<&Value>| -> Vec<&str> {
            if value.is_some() { str::split(text, '\n').collect() } else { Vec::new() }
        };
        let (old, new) = (split(&texts.0, old), split(&texts.1, new));
        let parts = compare(&old, &new);
        for (index, part) in parts.iter().enumerate() {
            match part {
                Part::Same(lines) => self.add_same(lines, index > 0, index + 1 < parts.len()),
                Part::Changed { old: [old], new: [new] } => self.add_changed_line(old, new),
                Part::Changed { old, new } => {
                    old.iter().for_each(|line| self.add('-', REMOVED, line));
                    new.iter().for_each(|line| self.add('+', ADDED, line));
                }
            }
        }
    }

    /// Adds a name that the server chose and the kind of its change, wrapped so that no line on the terminal looks like a marker.
    fn add_heading(&mut self, indent: &str, name: &str, kind: &str) {
        let text = format!("{}{kind}", escape_hidden(name));
        for (index, line) in wrap(&text, self.cells.unwrap_or(usize::MAX)).into_iter().enumerate() {
            let more = if index > 0 { "… " } else { "" };
            self.lines.push(format!("{indent}{more}{line}"));
        }
    }

    /// Adds unchanged lines: those next to a difference, and how many others there are.
    fn add_same(&mut self, lines: &[&str], follows: bool, precedes: bool) {
        let context = |is_wanted| if is_wanted { CONTEXT_LINES } else { 0 };
        let (first, last) = (context(follows), context(precedes));
        // One line takes no more room than its replacement.
        if lines.len() <= first + last + 1 {
            return lines.iter().for_each(|line| self.add_same_line(line));
        }
        lines[..first].iter().for_each(|line| self.add_same_line(line));
        self.lines.push(format!("  [{} lines unchanged]", lines.len() - first - last));
        lines[lines.len() - last..].iter().for_each(|line| self.add_same_line(line));
    }

    fn add_same_line(&mut self, line: &str) {
        match line.chars().count() {
            count if count > MAX_SAME_CHARS => self.add_unchanged_chars(count),
            _ => self.add(' ', Style::new(), line),
        }
    }

    /// Adds a line of which a part changed.
    fn add_changed_line(&mut self, old: &str, new: &str) {
        let (old, new): (Vec<char>, Vec<char>) = (old.chars().collect(), new.chars().collect());
        let (start, end) = common_ends(&old, &new);
        let omitted = |same: usize| if same > 2 * CONTEXT_CHARS { same - CONTEXT_CHARS } else { 0 };
        let (start, end) = (omitted(start), omitted(end));
        let shown = |text: &[char]| text[start..text.len() - end].iter().collect::<String>();
        if start > 0 {
            self.add_unchanged_chars(start);
        }
        self.add('-', REMOVED, &shown(&old));
        self.add('+', ADDED, &shown(&new));
        if end > 0 {
            self.add_unchanged_chars(end);
        }
    }

    fn add_unchanged_chars(&mut self, count: usize) {
        self.lines.push(format!("  [{count} characters unchanged]"));
    }

    /// Adds a line of text, wrapped so that each line on the terminal has the marker.
    fn add(&mut self, marker: char, style: Style, text: &str) {
        for line in wrap(&escape_hidden(text), self.cells.unwrap_or(usize::MAX)) {
            let space = if line.is_empty() { "" } else { " " };
            self.lines.push(format!("  {style}{marker}{space}{line}{style:#}"));
        }
    }
}

/// Finds what two texts have in common.
fn compare<'a>(old: &'a [&'a str], new: &'a [&'a str]) -> Vec<Part<'a>> {
    let (start, end) = common_ends(old, new);
    let (middle_old, middle_new) = (&old[start..old.len() - end], &new[start..new.len() - end]);
    let mut parts = vec![Part::Same(&old[..start])];
    let (mut old_at, mut new_at) = (0, 0);
    for (old_line, new_line, count) in common_runs(middle_old, middle_new) {
        parts.push(Part::Changed { old: &middle_old[old_at..old_line], new: &middle_new[new_at..new_line] });
        parts.push(Part::Same(&middle_old[old_line..old_line + count]));
        (old_at, new_at) = (old_line + count, new_line + count);
    }
    parts.push(Part::Changed { old: &middle_old[old_at..], new: &middle_new[new_at..] });
    parts.push(Part::Same(&old[old.len() - end..]));
    parts.retain(|part| !matches!(part, Part::Same([]) | Part::Changed { old: [], new: [] }));
    parts
}

/// How many items are the same at the start and, of the others, at the end.
fn common_ends<T: PartialEq>(old: &[T], new: &[T]) -> (usize, usize) {
    let start = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let rest = old[start..].iter().rev().zip(new[start..].iter().rev());
    (start, rest.take_while(|(old, new)| old == new).count())
}

/// Runs of the longest common subsequence of lines: where each begins in both, and its length.
fn common_runs(old: &[&str], new: &[&str]) -> Vec<(usize, usize, usize)> {
    let columns = new.len() + 1;
    if old.len().saturating_mul(new.len()) > MAX_COMPARED {
        return Vec::new();
    }
    // The length of the longest common subsequence of the lines from here on.
    let mut lengths = vec![0_u32; (old.len() + 1) * columns];
    for (at, line) in old.iter().enumerate().rev() {
        for (other, new_line) in new.iter().enumerate().rev() {
            lengths[at * columns + other] = match line == new_line {
                true => lengths[(at + 1) * columns + other + 1] + 1,
                false => lengths[(at + 1) * columns + other].max(lengths[at * columns + other + 1]),
            };
        }
    }
    let mut runs: Vec<(usize, usize, usize)> = Vec::new();
    let (mut at, mut other) = (0, 0);
    while at < old.len() && other < new.len() {
        if old[at] == new[other] {
            match runs.last_mut() {
                Some((run_at, run_other, count)) if *run_at + *count == at && *run_other + *count == other => {
                    *count += 1;
                }
                _ => runs.push((at, other, 1)),
            }
            (at, other) = (at + 1, other + 1);
        } else if lengths[(at + 1) * columns + other] >= lengths[at * columns + other + 1] {
            at += 1;
        } else {
            other += 1;
        }
    }
    runs
}

/// A text in pieces of at most this width, at any character; at least one.
fn wrap(text: &str, cells: usize) -> Vec<&str> {
    let (mut pieces, mut start, mut width) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        let own = c.width().unwrap_or(0);
        if width + own > cells {
            pieces.push(&text[start..at]);
            (start, width) = (at, 0);
        }
        width += own;
    }
    pieces.push(&text[start..]);
    pieces
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is shown of one difference, without colours.
    fn shown(before: Option<Value>, after: Option<Value>, width: Option<usize>) -> Vec<String> {
        let mut difference = json!({"path": "d"});
        [("before", before), ("after", after)].into_iter().for_each(|(key, value)| {
            if let Some(value) = value {
                difference[key] = value;
            }
        });
        let change = json!({"name": "e", "isNew": false, "differences": [difference]});
        let text = render_changes(&[change], &Printer { width, ..Printer::default() });
        let text = anstream::adapter::strip_str(&text).to_string();
        text.lines().skip(2).map(String::from).collect()
    }

    #[track_caller]
    fn check(before: &str, after: &str, expected: &[&str]) {
        assert_eq!(shown(Some(before.into()), Some(after.into()), None), expected);
    }

    #[test]
    fn changed_text_is_shown_whole_and_unchanged_text_by_its_length() {
        let word = "word ".repeat(100);
        let context = "word ".repeat(8);
        let hostile = "send keys ".repeat(500);
        check(
            &format!("{word}good{word}"),
            &format!("{word}bad {hostile}{word}"),
            &[
                "  [460 characters unchanged]",
                &format!("  - {context}good{context}"),
                &format!("  + {context}bad {hostile}{context}"),
                "  [460 characters unchanged]",
            ],
        );
        // A second difference, later in the text, is not hidden by the first one.
        check(&format!("a{word}a"), &format!("b{word}b"), &[&format!("  - a{word}a"), &format!("  + b{word}b")]);
    }

    #[test]
    fn lines_are_compared() {
        let old = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight";
        let new = "one\n2\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten";
        let expected = ["    one", "  - two", "  + 2", "    three", "    four", "  [2 lines unchanged]"];
        check(old, new, &[&expected[..], &["    seven", "    eight", "  + nine", "  + ten"]].concat());
        check("a", "a\n", &["    a", "  +"]);
    }

    #[test]
    fn large_texts_are_shown_whole() {
        let lines = |word: &str| (0..2_000).map(|line| format!("{word} {line}")).collect::<Vec<_>>();
        let (old, new) = (lines("old"), lines("new"));
        let expected: Vec<String> =
            old.iter().map(|line| format!("  - {line}")).chain(new.iter().map(|line| format!("  + {line}"))).collect();
        assert_eq!(shown(Some(old.join("\n").into()), Some(new.join("\n").into()), None), expected);
    }

    #[test]
    fn values_of_other_types_are_json() {
        assert_eq!(shown(None, Some(json!(["a"])), None), ["  + [", "  +   \"a\"", "  + ]"]);
        assert_eq!(shown(Some(json!("5")), Some(json!(5)), None), ["  - \"5\"", "  + 5"]);
        assert_eq!(shown(Some(json!(null)), None, None), ["  - null"]);
    }

    #[test]
    fn no_text_controls_the_terminal_or_looks_like_a_marker() {
        check("a", "a\u{1b}[2J\r\u{202e}\u{e0041}", &["  - a", r"  + a\u{1b}[2J\u{d}\u{202e}\u{e0041}"]);
        let padded = format!("a{}- b", " ".repeat(15));
        let expected = ["  - a", "  + a         ", "  +       - b"];
        assert_eq!(shown(Some("a".into()), Some(padded.into()), Some(14)), expected);
        // Nor does a name or a path.
        let difference = json!({"path": format!("a{}- b", " ".repeat(13)), "after": 1});
        let change = json!({"name": format!("echo{}+ c", " ".repeat(10)), "isNew": true, "differences": [difference]});
        let text = render_changes(&[change], &Printer { width: Some(14), ..Printer::default() });
        let text = anstream::adapter::strip_str(&text).to_string();
        let expected = ["echo      ", "…     + c  n", "… ew", "  a         ", "  …     - b ad", "  … ded", "  + 1"];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}

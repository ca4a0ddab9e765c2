//! One thing, as its fields: a name and a text on each line.
//!
//! In: names and texts. Out: lines in two columns; texts that are too long go on under themselves.

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use super::{formatting::wrap_line, strip_control_chars};

const NAME_STYLE: Style = Style::new().dimmed();

/// The fields of one thing.
#[derive(Debug, Default)]
pub(crate) struct Fields(Vec<(String, String, Style)>);

impl Fields {
    /// One more field, unless there is nothing to say.
    pub(crate) fn add(&mut self, name: &str, text: impl AsRef<str>) {
        self.add_styled(name, text, Style::new());
    }

    /// One more field in a colour.
    pub(crate) fn add_styled(&mut self, name: &str, text: impl AsRef<str>, style: Style) {
        if !text.as_ref().is_empty() {
            self.0.push((strip_control_chars(name), strip_control_chars(text.as_ref()), style));
        }
    }

    /// The lines, each after this indent.
    pub(crate) fn render(&self, width: Option<usize>, indent: usize) -> String {
        let names = self.0.iter().map(|(name, ..)| name.width()).max().unwrap_or(0);
        let room = width.map(|width| width.saturating_sub(indent + names + 2).max(20));
        let mut lines = String::new();
        for (name, text, style) in &self.0 {
            let gap = " ".repeat(names - name.width() + 2);
            for (at, line) in text.lines().flat_map(|line| wrap_line(line, room)).enumerate() {
                lines += &" ".repeat(indent);
                lines += &match at {
                    0 => format!("{NAME_STYLE}{name}{NAME_STYLE:#}{gap}{style}{line}{style:#}\n"),
                    _ => format!("{}{style}{line}{style:#}\n", " ".repeat(names + 2)),
                };
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_go_on_under_themselves() {
        let mut fields = Fields::default();
        fields.add("name", "calculator");
        fields.add("about", "Work out an arithmetic expression.");
        fields.add("nothing", "");
        let lines = anstream::adapter::strip_str(&fields.render(Some(30), 2)).to_string();
        let expected = ["  name   calculator", "  about  Work out an", "         arithmetic", "         expression."];
        assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
    }
}

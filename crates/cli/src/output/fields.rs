//! Renders one item as fields: a name and a text per line.
//!
//! In: names and texts. Out: lines in two columns; long texts wrap within the second column.

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use super::{formatting::wrap_line, strip_hidden};

const NAME_STYLE: Style = Style::new().dimmed();

/// The fields of an item.
#[derive(Debug, Default)]
pub(crate) struct Fields(Vec<(String, String, Style)>);

impl Fields {
    /// Adds a field, unless the text is empty.
    pub(crate) fn add(&mut self, name: &str, text: impl AsRef<str>) {
        self.add_styled(name, text, Style::new());
    }

    /// Adds a styled field, unless the text is empty.
    pub(crate) fn add_styled(&mut self, name: &str, text: impl AsRef<str>, style: Style) {
        if !text.as_ref().is_empty() {
            self.0.push((strip_hidden(name), strip_hidden(text.as_ref()), style));
        }
    }

    /// Renders the lines with this indent.
    pub(crate) fn render(&self, width: Option<usize>, indent: usize) -> String {
        let name_width = self.0.iter().map(|(name, ..)| name.width()).max().unwrap_or(0);
        let text_width = width.map(|width| width.saturating_sub(indent + name_width + 2).max(20));
        let mut lines = String::new();
        for (name, text, style) in &self.0 {
            let gap = " ".repeat(name_width - name.width() + 2);
            for (at, line) in text.lines().flat_map(|line| wrap_line(line, text_width)).enumerate() {
                lines += &" ".repeat(indent);
                lines += &match at {
                    0 => format!("{NAME_STYLE}{name}{NAME_STYLE:#}{gap}{style}{line}{style:#}\n"),
                    _ => format!("{}{style}{line}{style:#}\n", " ".repeat(name_width + 2)),
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

//! Renders a list as a table that fits the terminal.
//!
//! In: columns with their priorities, and rows of text. Out: lines. If they do not fit, shrinkable columns are truncated, then
//! columns are dropped, the least important first. If even the remaining ones do not fit, a row becomes two lines: the first
//! column has its own line, so that an id can be copied whole.

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use super::{formatting::truncate, strip_hidden};

const HEADER_STYLE: Style = Style::new().dimmed();
const COLUMN_GAP: usize = 2;
/// Indent of the second line of a row.
const INDENT: usize = 2;

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// One column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    title: &'static str,
    align: Align,
    /// The highest number is dropped first; 0 is never dropped.
    drop_order: u8,
    /// The minimum width when truncated; `None` if it must not be truncated.
    min_width: Option<usize>,
}

impl Column {
    /// A column that is neither dropped nor truncated.
    pub(crate) const fn new(title: &'static str) -> Self {
        Self { title, align: Align::Left, drop_order: 0, min_width: None }
    }

    /// Right-aligned, for numbers.
    pub(crate) const fn align_right(mut self) -> Self {
        self.align = Align::Right;
        self
    }

    /// May be dropped; the highest number first.
    pub(crate) const fn drop_order(mut self, order: u8) -> Self {
        self.drop_order = order;
        self
    }

    /// May be truncated to this many cells.
    pub(crate) const fn shrink_to(mut self, min_width: usize) -> Self {
        self.min_width = Some(min_width);
        self
    }
}

/// One line of a row: its indent, and the index and width of each column.
type LineLayout = (usize, Vec<(usize, usize)>);

/// A table being built.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<(String, Style)>>,
}

impl Table {
    pub(crate) fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row, with one text per column.
    pub(crate) fn add_row<const N: usize>(&mut self, cells: [String; N]) {
        self.add_styled_row(cells.map(|text| (text, Style::new())));
    }

    /// Adds a styled row.
    pub(crate) fn add_styled_row<const N: usize>(&mut self, cells: [(String, Style); N]) {
        let tidy = |(text, style): (String, Style)| (strip_hidden(&text).replace(['\n', '\t'], " "), style);
        self.rows.push(cells.into_iter().map(tidy).collect());
    }

    /// Renders the lines, at most this wide if possible.
    pub(crate) fn render(&self, width: Option<usize>, ascii: bool) -> String {
        let shown = self.layout(0, width);
        let lines = match width {
            Some(width) if total_width(&shown) > width && shown.len() > 1 => {
                vec![(0, vec![shown[0]]), (INDENT, self.layout(1, Some(width.saturating_sub(INDENT))))]
            }
            _ => vec![(0, shown)],
        };
        let mut text = self.render_row(&lines, ascii, |at| (self.columns[at].title, HEADER_STYLE));
        for row in &self.rows {
            text +=
                &self.render_row(&lines, ascii, |at| row.get(at).map_or(("", Style::new()), |(t, s)| (t.as_str(), *s)));
        }
        text
    }

    /// Renders one row, on one line or two.
    fn render_row<'a>(&self, lines: &[LineLayout], ascii: bool, cell: impl Fn(usize) -> (&'a str, Style)) -> String {
        lines.iter().map(|(indent, shown)| " ".repeat(*indent) + &self.render_line(shown, ascii, &cell)).collect()
    }

    /// The columns to show, starting with this one, and their widths.
    fn layout(&self, first: usize, width: Option<usize>) -> Vec<(usize, usize)> {
        let natural = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|(text, _)| text.width());
            cells.chain([self.columns[at].title.width()]).max().unwrap_or(0)
        };
        // A column without any text is not shown, unless it must not be dropped.
        let has_text = |at: &usize| self.rows.is_empty() || self.rows.iter().any(|row| !row[*at].0.is_empty());
        let is_shown = |at: &usize| self.columns[*at].drop_order == 0 || has_text(at);
        let mut shown: Vec<(usize, usize)> =
            (first..self.columns.len()).filter(is_shown).map(|at| (at, natural(at))).collect();
        let Some(width) = width else { return shown };
        loop {
            let excess = total_width(&shown).saturating_sub(width);
            if excess == 0 {
                return shown;
            }
            let min_widths: Vec<(usize, usize)> = shown
                .iter()
                .map(|(at, width)| (*at, self.columns[*at].min_width.map_or(*width, |min| min.min(*width))))
                .collect();
            let next_dropped = shown.iter().enumerate().max_by_key(|(_, (at, _))| self.columns[*at].drop_order);
            match next_dropped {
                // It does not fit even fully truncated: drop a column.
                Some((position, (at, _))) if total_width(&min_widths) > width && self.columns[*at].drop_order > 0 => {
                    shown.remove(position);
                }
                _ => return self.shrink(shown, &min_widths, excess),
            }
        }
    }

    /// Removes the excess cell by cell, from the column with the most room to shrink.
    fn shrink(
        &self,
        mut shown: Vec<(usize, usize)>,
        min_widths: &[(usize, usize)],
        mut excess: usize,
    ) -> Vec<(usize, usize)> {
        while excess > 0 {
            let room = |(position, (_, width)): (usize, &(usize, usize))| (width - min_widths[position].1, position);
            let Some((room, position)) = shown.iter().enumerate().map(room).max() else { break };
            if room == 0 {
                break;
            }
            shown[position].1 -= 1;
            excess -= 1;
        }
        shown
    }

    fn render_line<'a>(
        &self,
        shown: &[(usize, usize)],
        ascii: bool,
        cell: impl Fn(usize) -> (&'a str, Style),
    ) -> String {
        let mut line = String::new();
        let mut padding = 0;
        for (at, width) in shown {
            let (text, style) = cell(*at);
            let text = truncate(text, *width, ascii);
            let space = width - text.width();
            let (before, after) = if self.columns[*at].align == Align::Right { (space, 0) } else { (0, space) };
            if !text.is_empty() {
                line += &" ".repeat(padding + before);
                line += &format!("{style}{text}{style:#}");
                padding = 0;
            } else {
                padding += before;
            }
            padding += after + COLUMN_GAP;
        }
        line + "\n"
    }
}

fn total_width(shown: &[(usize, usize)]) -> usize {
    shown.iter().map(|(_, width)| width + COLUMN_GAP).sum::<usize>().saturating_sub(COLUMN_GAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new([
            Column::new("NAME"),
            Column::new("KIND").drop_order(1),
            Column::new("CALLS").align_right().drop_order(2),
            Column::new("NOTE").drop_order(3).shrink_to(8),
        ]);
        table.add_row(["calculator".into(), "stateless".into(), "1204".into(), String::new()]);
        table.add_row(["天气".into(), "rest".into(), "98".into(), "3 failures in a row".into()]);
        table
    }

    #[track_caller]
    fn check(width: Option<usize>, expected: &[&str]) {
        let lines = sample().render(width, false);
        let lines = anstream::adapter::strip_str(&lines).to_string();
        assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
        if let Some(width) = width {
            assert!(lines.lines().all(|line| line.width() <= width));
        }
    }

    #[test]
    fn columns_line_up_in_cells_not_in_characters() {
        check(
            None,
            &[
                "NAME        KIND       CALLS  NOTE",
                "calculator  stateless   1204",
                "天气        rest          98  3 failures in a row",
            ],
        );
    }

    #[test]
    fn a_narrow_terminal_gets_less_but_whole_rows() {
        check(
            Some(40),
            &[
                "NAME        KIND       CALLS  NOTE",
                "calculator  stateless   1204",
                "天气        rest          98  3 failure…",
            ],
        );
        check(
            Some(30),
            &["NAME        KIND       CALLS", "calculator  stateless   1204", "天气        rest          98"],
        );
        check(Some(22), &["NAME        KIND", "calculator  stateless", "天气        rest"]);
        check(Some(12), &["NAME", "calculator", "天气"]);
    }

    #[test]
    fn a_row_that_cannot_fit_has_a_line_for_what_names_it_and_one_for_the_rest() {
        let mut table = Table::new([Column::new("ID"), Column::new("STATUS"), Column::new("WHEN").drop_order(1)]);
        table.add_row(["call_0000000001".into(), "awaiting approval".into(), "just now".into()]);
        table.add_row(["call_0000000002".into(), "success".into(), "just now".into()]);
        let lines = |width| anstream::adapter::strip_str(&table.render(Some(width), false)).to_string();
        assert_eq!(lines(34).lines().count(), 3);
        assert_eq!(
            lines(33).lines().collect::<Vec<_>>(),
            [
                "ID",
                "  STATUS             WHEN",
                "call_0000000001",
                "  awaiting approval  just now",
                "call_0000000002",
                "  success            just now",
            ]
        );
        assert_eq!(lines(20).lines().nth(3), Some("  awaiting approval"));
    }
}

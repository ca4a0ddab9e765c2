//! Output of commands: data on stdout, notes on stderr.
//!
//! In: the output flags and the kind of terminal. Out: text that fits it. `table` prints lists, `fields` single items, `json`
//! JSON documents; `formatting` formats statuses and times, `spinner` shows that a command is still working.

mod fields;
mod formatting;
mod json;
mod spinner;
mod table;

use std::io::{self, IsTerminal, Write as _};

use anstyle::Style;

pub(crate) use fields::Fields;
pub(crate) use formatting::{
    format_ago, format_millis, format_remaining, format_status, format_timestamp, truncate_value, warning_sign,
    wrap_text,
};
pub(crate) use json::indent_json;
pub(crate) use spinner::Spinner;
pub(crate) use table::{Column, Table};
pub(crate) use toolhub::hidden_chars::strip_hidden;

/// Style of notes.
const DIMMED: Style = Style::new().dimmed();

/// How to print: the flags and what the terminal supports.
#[derive(Debug, Clone, Default)]
pub(crate) struct Printer {
    /// Print JSON instead of text.
    pub(crate) json: bool,
    /// Print no notes.
    pub(crate) quiet: bool,
    /// Print more notes.
    pub(crate) verbose: bool,
    /// Print ASCII only.
    pub(crate) ascii: bool,
    /// The width of a line in cells; `None` where stdout is no terminal.
    pub(crate) width: Option<usize>,
    /// Whether stdout is a terminal.
    pub(crate) terminal: bool,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal that can show them, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Printer {
    /// Combines the flags with what the terminal supports.
    pub(crate) fn detect(json: bool, quiet: bool, verbose: bool, color: Color) -> Self {
        match color {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        }
        .write_global();
        let env_var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(env_var).unwrap_or_default().to_lowercase();
        let utf8 = locale.contains("utf-8") || locale.contains("utf8");
        let measured = || terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
        let width = env_var("COLUMNS").and_then(|columns| columns.parse().ok()).or_else(measured);
        Self {
            json,
            quiet,
            verbose,
            ascii: !utf8 || env_var("TERM").as_deref() == Some("dumb"),
            width: width.map(|width: usize| width.max(20)),
            terminal: io::stdout().is_terminal(),
        }
    }

    /// Prints data on stdout.
    pub(crate) fn print(&self, text: &str) {
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        // Printing fails only when the reader has closed the pipe.
        let _ = write!(anstream::stdout(), "{text}{end}");
    }

    /// Prints text of a tool on stdout. On a terminal it strips control characters, so that the text cannot control the terminal.
    pub(crate) fn print_untrusted(&self, text: &str) {
        if self.terminal {
            return self.print(&strip_hidden(text));
        }
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        let _ = write!(io::stdout().lock(), "{text}{end}");
    }

    /// Prints a JSON document of the API on stdout, indented.
    pub(crate) fn print_json(&self, text: &str) {
        self.print_untrusted(&indent_json(text));
    }

    /// Prints a note on stderr.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet && !self.json {
            let _ = writeln!(anstream::stderr(), "{text}");
        }
    }

    /// Prints a note on stderr, only with `--verbose`.
    pub(crate) fn note_verbose(&self, text: &str) {
        if self.verbose && !self.quiet {
            let _ = writeln!(anstream::stderr(), "{DIMMED}{}{DIMMED:#}", strip_hidden(text));
        }
    }
}

//! Renders problems for people: location, source line, marker and help.

use std::{fmt::Write, ops::Range};

use anstyle::{AnsiColor, Style};
use toolhub::redact;

use super::{
    super::{secret_text::is_secret, tree::Origin},
    Problem, Problems,
};

/// Whether to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenderStyle {
    Plain,
    /// For a stream that strips colours where they are not supported.
    Coloured,
}

const ERROR_STYLE: Style = AnsiColor::Red.on_default().bold();
const BOLD: Style = Style::new().bold();
const FRAME_STYLE: Style = AnsiColor::Blue.on_default().bold();
const HELP_STYLE: Style = AnsiColor::Cyan.on_default().bold();

struct Styles {
    error: Style,
    bold: Style,
    frame: Style,
    help: Style,
}

/// Renders all problems, and how many there are.
pub(crate) fn render(problems: &Problems, render_style: RenderStyle) -> String {
    let none = Style::new();
    let styles = match render_style {
        RenderStyle::Plain => Styles { error: none, bold: none, frame: none, help: none },
        RenderStyle::Coloured => Styles { error: ERROR_STYLE, bold: BOLD, frame: FRAME_STYLE, help: HELP_STYLE },
    };
    let mut text = String::new();
    for problem in problems.iter() {
        // Writing into a string cannot fail.
        let _ = render_problem(&mut text, problem, &styles);
        text.push('\n');
    }
    let Styles { error, bold, .. } = styles;
    let summary = match problems.len() {
        1 => "there is 1 problem in the config".into(),
        count => format!("there are {count} problems in the config"),
    };
    let _ = writeln!(text, "{error}error{error:#}{bold}: {summary}{bold:#}");
    text
}

fn render_problem(text: &mut String, problem: &Problem, styles: &Styles) -> std::fmt::Result {
    let Styles { error, bold, frame, help: help_style } = styles;
    writeln!(text, "{error}error{error:#}{bold}: {}{bold:#}", replace_control_chars(&problem.message))?;
    let mut margin = 1;
    match &problem.origin {
        Origin::File { source, span } => margin = render_excerpt(text, &source.name, &source.text, span, styles)?,
        Origin::Env { name, file: Some((source, span)) } => {
            margin = render_excerpt(text, &source.name, &source.text, span, styles)?;
            writeln!(text, "{:margin$}{frame}={frame:#} {bold}note{bold:#}: this sets the variable {name}", "")?;
        }
        Origin::Env { name, file: None } => {
            writeln!(text, " {frame}-->{frame:#} environment variable {name}")?;
        }
        Origin::Flag(flag) if flag.is_empty() => {}
        Origin::Flag(flag) => writeln!(text, " {frame}-->{frame:#} {}", replace_control_chars(flag))?,
    }
    if let Some(help) = &problem.help {
        for (at, line) in replace_control_chars(help).lines().enumerate() {
            let (marker, label) = if at == 0 { ("=", "help:") } else { (" ", "     ") };
            writeln!(text, "{:margin$}{frame}{marker}{frame:#} {help_style}{label}{help_style:#} {line}", "")?;
        }
    }
    Ok(())
}

/// Renders the location, the line and the marker; returns the width of the margin.
fn render_excerpt(
    text: &mut String,
    name: &str,
    file: &str,
    span: &Range<usize>,
    styles: &Styles,
) -> Result<usize, std::fmt::Error> {
    let Styles { error, frame, .. } = styles;
    let position = TextPosition::locate(file, span);
    let number = position.line.to_string();
    let margin = number.len() + 1;
    writeln!(text, "{:1$}{frame}-->{frame:#} {name}:{2}:{3}", "", margin - 1, position.line, position.column)?;
    if file.is_empty() {
        return Ok(margin);
    }
    let (line, hidden) = redact_line(position.text);
    // A marker cannot point into masked text.
    let (column, width) = match hidden {
        Some(from) if from < position.column => (from + 1, MASK.chars().count()),
        _ => (position.column.min(line.chars().count() + 1), position.width),
    };
    writeln!(text, "{:margin$}{frame}|{frame:#}", "")?;
    writeln!(text, "{frame}{number} |{frame:#} {line}")?;
    // Repeat tabs before the marker, to keep it aligned.
    let gap: String = position.text.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let max_width = line.chars().count().saturating_sub(column - 1).max(1);
    let marker = "^".repeat(width.clamp(1, max_width));
    writeln!(text, "{:margin$}{frame}|{frame:#} {gap}{error}{marker}{error:#}", "")?;
    Ok(margin)
}

/// A position in a text, counted from 1.
pub(crate) struct TextPosition<'a> {
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// The number of characters of the span on this line.
    width: usize,
    pub(crate) text: &'a str,
}

impl<'a> TextPosition<'a> {
    pub(crate) fn locate(text: &'a str, span: &Range<usize>) -> Self {
        let start = (0..=span.start.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let end = text[line_start..].find('\n').map_or(text.len(), |at| line_start + at);
        let stop = (start..=span.end.clamp(start, end)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(start);
        Self {
            line: before.matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            width: text[start..stop].chars().count(),
            text: text[line_start..end].trim_end_matches('\r'),
        }
    }
}

/// Maximum width of a source line.
const MAX_LINE_WIDTH: usize = 160;

/// Replaces secrets.
const MASK: &str = "••••";

/// A source line with secrets masked: everything after a key that sounds secret, unless it only refers to a secret. Also returns
/// how many characters precede the mask.
fn redact_line(line: &str) -> (String, Option<usize>) {
    let secret = line.match_indices('=').map(|(at, _)| at).find(|at| {
        let before = line[..*at].trim_end().trim_end_matches(['"', '\'']);
        let name = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').next().unwrap_or_default();
        let value = line[at + 1..].trim_start();
        let inside = value.strip_prefix('{').map(str::trim_start).unwrap_or_default();
        is_secret_name(name) && !inside.starts_with("env") && !inside.starts_with("file")
    });
    let clean = |line: &str| replace_control_chars(&redact_urls(line).chars().take(MAX_LINE_WIDTH).collect::<String>());
    match secret {
        Some(at) => {
            let before = clean(&format!("{}= ", &line[..at]));
            let hidden = before.chars().count();
            (before + MASK, Some(hidden))
        }
        None => (clean(line), None),
    }
}

/// Masks user, password and the values of the query of the URLs in a line.
fn redact_urls(line: &str) -> String {
    let Some((before, rest)) = line.split_once("://") else { return line.to_owned() };
    let (url, after) = rest.split_at(rest.find(['"', '\'', ' ']).unwrap_or(rest.len()));
    let (address, query) = url.split_once('?').map_or((url, None), |(address, query)| (address, Some(query)));
    let (authority, path) = address.split_at(address.find(['/', '#']).unwrap_or(address.len()));
    let authority =
        authority.rfind('@').map_or_else(|| authority.to_owned(), |at| format!("{MASK}{}", &authority[at..]));
    let path = if is_secret("", path) { format!("/{MASK}") } else { path.to_owned() };
    let query = query.map(|query| {
        let pairs = query.split('&').map(|pair| match pair.split_once('=') {
            // What stands for an argument or a variable is no secret.
            Some((name, value)) if !value.contains('{') => format!("{name}={MASK}"),
            _ => pair.to_owned(),
        });
        format!("?{}", pairs.collect::<Vec<_>>().join("&"))
    });
    format!("{before}://{authority}{path}{}{}", query.unwrap_or_default(), redact_urls(after))
}

/// Keys that count tokens of a model, and are not secret.
const TOKEN_COUNT_KEYS: [&str; 2] = ["max_tokens", "token_budget"];

/// Whether a key of this name is secret. `telemetry.redact` is not known yet while files are parsed.
pub(crate) fn is_secret_name(name: &str) -> bool {
    name == "hash" || (redact::is_secret_name(name) && !TOKEN_COUNT_KEYS.contains(&name))
}

/// Replaces control characters, which could move a terminal's cursor.
fn replace_control_chars(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

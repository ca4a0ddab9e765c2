//! Problems as people like to read them: the place, the line, a mark, and what to do.

use std::{fmt::Write, ops::Range};

use anstyle::{AnsiColor, Style as Colour};

use super::{
    super::{raw::SECRET_NAME_GLOBS, tree::Origin},
    Problem, Problems,
};

/// Whether there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenderStyle {
    Plain,
    /// For a stream that drops them where they cannot be seen.
    Coloured,
}

const ERROR_STYLE: Colour = AnsiColor::Red.on_default().bold();
const BOLD: Colour = Colour::new().bold();
const FRAME_STYLE: Colour = AnsiColor::Blue.on_default().bold();
const HELP_STYLE: Colour = AnsiColor::Cyan.on_default().bold();

struct Colours {
    bad: Colour,
    strong: Colour,
    frame: Colour,
    good: Colour,
}

/// All problems, and how many there are.
pub(crate) fn render(problems: &Problems, style: RenderStyle) -> String {
    let none = Colour::new();
    let colours = match style {
        RenderStyle::Plain => Colours { bad: none, strong: none, frame: none, good: none },
        RenderStyle::Coloured => Colours { bad: ERROR_STYLE, strong: BOLD, frame: FRAME_STYLE, good: HELP_STYLE },
    };
    let mut text = String::new();
    for problem in problems.iter() {
        // Writing into a string cannot fail.
        let _ = render_problem(&mut text, problem, &colours);
        text.push('\n');
    }
    let Colours { bad, strong, .. } = colours;
    let what = match problems.len() {
        1 => "there is 1 problem in the config".into(),
        many => format!("there are {many} problems in the config"),
    };
    let _ = writeln!(text, "{bad}error{bad:#}{strong}: {what}{strong:#}");
    text
}

fn render_problem(text: &mut String, problem: &Problem, colours: &Colours) -> std::fmt::Result {
    let Colours { bad, strong, frame, good } = colours;
    writeln!(text, "{bad}error{bad:#}{strong}: {}{strong:#}", replace_control_chars(&problem.message))?;
    let mut margin = 1;
    match &problem.origin {
        Origin::File { source, span } => margin = render_excerpt(text, &source.name, &source.text, span, colours)?,
        Origin::Env { name, file: Some((source, span)) } => {
            margin = render_excerpt(text, &source.name, &source.text, span, colours)?;
            writeln!(text, "{:margin$}{frame}={frame:#} {strong}note{strong:#}: this is the variable {name}", "")?;
        }
        Origin::Env { name, file: None } => {
            writeln!(text, " {frame}-->{frame:#} environment variable {name}")?;
        }
        Origin::Flag(flag) if flag.is_empty() => {}
        Origin::Flag(flag) => writeln!(text, " {frame}-->{frame:#} {}", replace_control_chars(flag))?,
    }
    if let Some(help) = &problem.help {
        for (at, line) in replace_control_chars(help).lines().enumerate() {
            let (mark, word) = if at == 0 { ("=", "help:") } else { (" ", "     ") };
            writeln!(text, "{:margin$}{frame}{mark}{frame:#} {good}{word}{good:#} {line}", "")?;
        }
    }
    Ok(())
}

/// The place, the line and the mark; and how wide the margin is.
fn render_excerpt(
    text: &mut String,
    name: &str,
    file: &str,
    span: &Range<usize>,
    colours: &Colours,
) -> Result<usize, std::fmt::Error> {
    let Colours { bad, frame, .. } = colours;
    let place = TextPosition::locate(file, span);
    let number = place.line.to_string();
    let margin = number.len() + 1;
    writeln!(text, "{:1$}{frame}-->{frame:#} {name}:{2}:{3}", "", margin - 1, place.line, place.column)?;
    if file.is_empty() {
        return Ok(margin);
    }
    let (line, hidden) = redact_line(place.text);
    // What is hidden cannot be pointed into.
    let (column, width) = match hidden {
        Some(from) if from < place.column => (from + 1, MASK.chars().count()),
        _ => (place.column.min(line.chars().count() + 1), place.width),
    };
    writeln!(text, "{:margin$}{frame}|{frame:#}", "")?;
    writeln!(text, "{frame}{number} |{frame:#} {line}")?;
    // Tabs before the mark keep it in place only if the gap repeats them.
    let gap: String = place.text.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let room = line.chars().count().saturating_sub(column - 1).max(1);
    let mark = "^".repeat(width.clamp(1, room));
    writeln!(text, "{:margin$}{frame}|{frame:#} {gap}{bad}{mark}{bad:#}", "")?;
    Ok(margin)
}

/// A place in a text, as people count.
pub(crate) struct TextPosition<'a> {
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// How many characters are meant, on this line.
    width: usize,
    pub(crate) text: &'a str,
}

impl<'a> TextPosition<'a> {
    pub(crate) fn locate(text: &'a str, span: &Range<usize>) -> Self {
        let start = (0..=span.start.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let before = &text[..start];
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        let end = text[begin..].find('\n').map_or(text.len(), |at| begin + at);
        let stop = (start..=span.end.clamp(start, end)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(start);
        Self {
            line: before.matches('\n').count() + 1,
            column: text[begin..start].chars().count() + 1,
            width: text[start..stop].chars().count(),
            text: text[begin..end].trim_end_matches('\r'),
        }
    }
}

/// How much of a line is shown.
const MAX_LINE_WIDTH: usize = 160;

/// What stands in the place of what must not be seen.
const MASK: &str = "••••";

/// A line of a file, without what must not be seen: everything behind a key that sounds secret. A reference to a secret is
/// none. And how many characters stand before what is hidden.
fn redact_line(line: &str) -> (String, Option<usize>) {
    let secret = line.match_indices('=').map(|(at, _)| at).find(|at| {
        let before = line[..*at].trim_end().trim_end_matches(['"', '\'']);
        let name = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').next().unwrap_or_default();
        let behind = line[at + 1..].trim_start();
        let inside = behind.strip_prefix('{').map(str::trim_start).unwrap_or_default();
        is_secret_name(name) && !inside.starts_with("env") && !inside.starts_with("file")
    });
    let start = |line: &str| {
        replace_control_chars(&redact_url_passwords(line).chars().take(MAX_LINE_WIDTH).collect::<String>())
    };
    match secret {
        Some(at) => {
            let before = start(&format!("{}= ", &line[..at]));
            let hidden = before.chars().count();
            (before + MASK, Some(hidden))
        }
        None => (start(line), None),
    }
}

/// A line without what stands before the `@` of an address in it.
fn redact_url_passwords(line: &str) -> String {
    let Some((before, rest)) = line.split_once("://") else { return line.to_owned() };
    let end = rest.find(['/', '?', '#', '"', '\'', ' ']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{before}://{MASK}{}", redact_url_passwords(&rest[at..])),
        None => format!("{before}://{}", redact_url_passwords(rest)),
    }
}

/// Keys that are about tokens of models, and hide nothing.
const TOKEN_COUNT_KEYS: [&str; 2] = ["max_tokens", "token_budget"];

/// Whether a key of this name holds what nobody should see. The owner's own list is not known while files are read.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let name = name.to_lowercase().replace('-', "_");
    if TOKEN_COUNT_KEYS.contains(&name.as_str()) {
        return false;
    }
    name == "hash" || SECRET_NAME_GLOBS.iter().any(|glob| name.contains(glob.trim_matches('*')))
}

/// Without anything that would move a terminal's cursor.
fn replace_control_chars(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

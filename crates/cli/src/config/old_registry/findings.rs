//! Collects what was found in an old registry: problems, which refuse the config, and notes on what was adjusted.
//!
//! In: the place of a value and the text about it. Out: both lists, in the order of reading.

use std::fmt;

use super::super::{
    problem::{Problem, TextPosition},
    tree::{Origin, Path},
};

#[derive(Default)]
pub(super) struct Findings {
    pub(super) problems: Vec<Problem>,
    pub(super) notes: Vec<Note>,
    /// The key of our config that is being read.
    key: Path,
}

/// An adjustment, or something that could not be carried over.
#[derive(Debug, Clone)]
pub(super) struct Note {
    origin: Origin,
    text: String,
}

impl Findings {
    /// Names the key of our config for the problems that follow.
    pub(super) fn begin(&mut self, key: Path) {
        self.key = key;
    }

    pub(super) fn note(&mut self, origin: &Origin, text: impl Into<String>) {
        self.notes.push(Note { origin: origin.clone(), text: text.into() });
    }

    pub(super) fn report(&mut self, origin: &Origin, message: impl Into<String>, help: impl Into<String>) {
        self.problems.push(Problem::at(origin, &self.key, message).help(help));
    }

    /// Reports a problem at a line that must not be shown, because it contains a secret.
    pub(super) fn report_unquoted(&mut self, origin: &Origin, message: impl Into<String>, help: impl Into<String>) {
        let place = Origin::Flag(place(origin));
        self.report(&place, message, help);
    }

    /// The notes that were added since there were this many, by line and without their file, which is that of the section.
    pub(super) fn lines_since(&self, count: usize) -> Vec<String> {
        let mut notes: Vec<(usize, &str)> =
            self.notes.iter().skip(count).map(|note| (note.line(), note.text.as_str())).collect();
        notes.sort_by_key(|(line, _)| *line);
        notes.into_iter().map(|(line, text)| format!("line {line}: {text}")).collect()
    }
}

impl Note {
    fn line(&self) -> usize {
        match &self.origin {
            Origin::File { source, span } => TextPosition::locate(&source.text, span).line,
            Origin::Env { .. } | Origin::Flag(_) => 1,
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::File { source, .. } => write!(f, "{}:{}: {}", source.name, self.line(), self.text),
            Origin::Env { name, .. } => write!(f, "{name}: {}", self.text),
            Origin::Flag(flag) if flag.is_empty() => f.write_str(&self.text),
            Origin::Flag(flag) => write!(f, "{flag}: {}", self.text),
        }
    }
}

/// `file:line` of a value.
pub(super) fn place(origin: &Origin) -> String {
    let note = Note { origin: origin.clone(), text: String::new() };
    note.to_string().trim_end_matches(": ").to_owned()
}

//! Problems of a config, and how they are reported.
//!
//! In: problems, each with its location. Out: text for people, with the source line and a marker under the error; or JSON. Values of
//! secrets are never shown.

mod render;

use std::fmt;

use serde_json::json;

pub(crate) use render::{RenderStyle, TextPosition, is_secret_name, render};

use super::tree::{Origin, Path};

/// A problem of a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Where it is.
    pub(crate) origin: Origin,
    /// The path of the key; empty if the problem concerns no key.
    pub(crate) key: String,
    /// What is wrong.
    pub(crate) message: String,
    /// How to fix it.
    pub(crate) help: Option<String>,
}

impl Problem {
    pub(crate) fn new(origin: Origin, key: impl Into<String>, message: String) -> Self {
        Self { origin, key: key.into(), message, help: None }
    }

    /// A problem of a key.
    pub(crate) fn at(origin: &Origin, path: &Path, message: impl Into<String>) -> Self {
        Self::new(origin.clone(), path.to_string(), message.into())
    }

    /// Adds how to fix it.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Its location: file, line and column, or a variable, or a flag.
    pub(crate) fn location(&self) -> String {
        match &self.origin {
            Origin::File { source, span } => {
                let position = TextPosition::locate(&source.text, span);
                format!("{}:{}:{}", source.name, position.line, position.column)
            }
            Origin::Env { name, .. } => name.clone(),
            Origin::Flag(text) => text.clone(),
        }
    }
}

/// All problems of a config; at least one. Its `Debug` output is the same readable text, because it may end up in a panic message.
#[derive(Clone)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    /// Sorts the problems by location and removes duplicates.
    pub(crate) fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| match &problem.origin {
            Origin::File { source, span } => (0, source.name.clone(), span.start),
            Origin::Env { name, .. } => (1, name.clone(), 0),
            Origin::Flag(text) => (2, text.clone(), 0),
        });
        let mut unique: Vec<Problem> = Vec::with_capacity(problems.len());
        for problem in problems {
            if !unique.contains(&problem) {
                unique.push(problem);
            }
        }
        Self(unique)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// As JSON.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let problems = self.0.iter().map(|problem| {
            let mut item = json!({ "key": problem.key, "message": problem.message, "help": problem.help });
            match &problem.origin {
                Origin::File { source, span } => {
                    let position = TextPosition::locate(&source.text, span);
                    item["file"] = source.name.clone().into();
                    item["line"] = position.line.into();
                    item["column"] = position.column.into();
                }
                Origin::Env { name, .. } => item["env"] = name.clone().into(),
                Origin::Flag(text) => item["flag"] = text.clone().into(),
            }
            item
        });
        problems.collect()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&render(self, RenderStyle::Plain))
    }
}

impl fmt::Debug for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Problems {}

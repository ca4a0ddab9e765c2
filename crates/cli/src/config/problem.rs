//! What is wrong with a config, and how it is told.
//!
//! In: problems as they are found, each with its place. Out: text for people, with the line and a mark under what is
//! wrong; or JSON for programs. Never the value of a secret.

mod render;

use std::fmt;

use serde_json::json;

pub(crate) use render::{RenderStyle, TextPosition, is_secret_name, render};

use super::tree::{Origin, Path};

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Where.
    pub(crate) origin: Origin,
    /// The key, with the way to it; empty where no key is to blame.
    pub(crate) key: String,
    /// What.
    pub(crate) message: String,
    /// What to do.
    pub(crate) help: Option<String>,
}

impl Problem {
    pub(crate) fn new(origin: Origin, key: impl Into<String>, message: String) -> Self {
        Self { origin, key: key.into(), message, help: None }
    }

    /// At a key.
    pub(crate) fn at(origin: &Origin, path: &Path, message: impl Into<String>) -> Self {
        Self::new(origin.clone(), path.to_string(), message.into())
    }

    /// With what to do about it.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Where it is, in one word: file, line and column, a variable or a flag.
    pub(crate) fn location(&self) -> String {
        match &self.origin {
            Origin::File { source, span } => {
                let place = TextPosition::locate(&source.text, span);
                format!("{}:{}:{}", source.name, place.line, place.column)
            }
            Origin::Env { name, .. } => name.clone(),
            Origin::Flag(text) => text.clone(),
        }
    }
}

/// Everything that is wrong with a config; at least one thing. It prints as people read it, also where a program that ends
/// with it prints it for programmers.
#[derive(Clone)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    /// In the order of the places.
    pub(crate) fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| match &problem.origin {
            Origin::File { source, span } => (0, source.name.clone(), span.start),
            Origin::Env { name, .. } => (1, name.clone(), 0),
            Origin::Flag(text) => (2, text.clone(), 0),
        });
        let mut each: Vec<Problem> = Vec::with_capacity(problems.len());
        for problem in problems {
            if !each.contains(&problem) {
                each.push(problem);
            }
        }
        Self(each)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// For programs.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let problems = self.0.iter().map(|problem| {
            let mut told = json!({ "key": problem.key, "message": problem.message, "help": problem.help });
            match &problem.origin {
                Origin::File { source, span } => {
                    let place = TextPosition::locate(&source.text, span);
                    told["file"] = source.name.clone().into();
                    told["line"] = place.line.into();
                    told["column"] = place.column.into();
                }
                Origin::Env { name, .. } => told["env"] = name.clone().into(),
                Origin::Flag(text) => told["flag"] = text.clone().into(),
            }
            told
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

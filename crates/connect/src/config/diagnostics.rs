//! Collects the problems of a config while it is resolved, and resolves its references.
//!
//! In: a [`ConfigEnv`] with variables and paths, and a function that knows which keys are set. Out: problems, each with its key and
//! what to do. Readers report a problem and go on, so that one pass finds them all.

use std::{fmt, path::PathBuf};

use toolhub_net::SecretText;

use super::KeyPath;

/// The environment of a config: the variables it may refer to, and the base directory of its paths.
pub trait ConfigEnv: Send + Sync {
    /// The value of a variable; `None` if it is not set.
    fn variable(&self, name: &str) -> Option<String>;

    /// Resolves the path of a file or directory that is configured at a key.
    fn resolve_path(&self, key: &KeyPath, path: &str) -> PathBuf;

    /// Secrets that the texts at a key, or below it, contain because they refer to variables.
    fn secret_texts(&self, _: &KeyPath) -> Vec<SecretText> {
        Vec::new()
    }

    /// What to do about a variable that is not set.
    fn unset_hint(&self, variable: &str) -> String {
        format!("set it before the program starts: {variable}=…")
    }
}

/// The environment variables and the working directory of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnv;

impl ConfigEnv for ProcessEnv {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn resolve_path(&self, _: &KeyPath, path: &str) -> PathBuf {
        path.into()
    }
}

/// One problem of a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The full path of the key; empty if the problem has no single key.
    pub key: KeyPath,
    /// What is wrong. Never the value of a secret.
    pub message: String,
    /// What to do.
    pub help: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.0.is_empty() {
            write!(f, "`{}`: ", self.key)?;
        }
        write!(f, "{} ({})", self.message, self.help)
    }
}

/// The problems found so far, and the environment to resolve references in.
pub struct Diagnostics<'a> {
    env: &'a dyn ConfigEnv,
    is_set: &'a dyn Fn(&KeyPath) -> bool,
    problems: Vec<Problem>,
}

impl<'a> Diagnostics<'a> {
    /// Empty diagnostics. `is_set` returns whether the config has a value at a key.
    pub fn new(env: &'a dyn ConfigEnv, is_set: &'a dyn Fn(&KeyPath) -> bool) -> Self {
        Self { env, is_set, problems: Vec::new() }
    }

    /// Adds a problem with the value at a key, or with its absence, and what to do.
    pub fn report(&mut self, key: &KeyPath, message: impl Into<String>, help: impl Into<String>) {
        self.problems.push(Problem { key: key.clone(), message: message.into(), help: help.into() });
    }

    /// Whether the config has a value at this key.
    #[must_use]
    pub fn is_set(&self, key: &KeyPath) -> bool {
        (self.is_set)(key)
    }

    /// Resolves the path of a file or directory that is configured at a key.
    #[must_use]
    pub fn resolve_path(&self, key: &KeyPath, path: &str) -> PathBuf {
        self.env.resolve_path(key, path)
    }

    /// The problems found so far.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// All problems.
    #[must_use]
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    pub(super) fn env(&self) -> &dyn ConfigEnv {
        self.env
    }
}

impl fmt::Debug for Diagnostics<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Diagnostics").field("problems", &self.problems).finish_non_exhaustive()
    }
}

//! Where a config is read: what its references lead to, and what is wrong with it.
//!
//! In: a [`Ground`], which knows variables and folders, and whoever knows which keys are written. Out: problems, each with its key
//! and what to do. Whoever reads adds what is wrong and goes on, so that everything is told at once.

use std::{fmt, path::PathBuf};

use super::KeyPath;

/// What a config stands on: the variables it may name, and the folder its paths begin in.
pub trait ConfigEnv: Send + Sync {
    /// What a variable holds; nothing where it is not set.
    fn variable(&self, name: &str) -> Option<String>;

    /// The whole path of a file or a folder that is named at a key.
    fn resolve_path(&self, key: &KeyPath, path: &str) -> PathBuf;

    /// What to do about a variable that is not set.
    fn unset_hint(&self, variable: &str) -> String {
        format!("set it before the program starts: {variable}=…")
    }
}

/// The environment and the working folder of this process.
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

/// One thing that is wrong with a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key, with the way to it; empty where no key is to blame.
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

/// What the parts of a config share while they are read.
pub struct Diagnostics<'a> {
    env: &'a dyn ConfigEnv,
    is_set: &'a dyn Fn(&KeyPath) -> bool,
    problems: Vec<Problem>,
}

impl<'a> Diagnostics<'a> {
    /// A desk on this ground. `said` tells whether something is written at a key.
    pub fn new(ground: &'a dyn ConfigEnv, said: &'a dyn Fn(&KeyPath) -> bool) -> Self {
        Self { env: ground, is_set: said, problems: Vec::new() }
    }

    /// Says that something is wrong with the value at a key, or where it would stand; and what to do.
    pub fn report(&mut self, key: &KeyPath, message: impl Into<String>, help: impl Into<String>) {
        self.problems.push(Problem { key: key.clone(), message: message.into(), help: help.into() });
    }

    /// Whether somebody said something at this key.
    #[must_use]
    pub fn is_set(&self, key: &KeyPath) -> bool {
        (self.is_set)(key)
    }

    /// The whole path of a file or a folder that is named at a key.
    #[must_use]
    pub fn resolve_path(&self, key: &KeyPath, path: &str) -> PathBuf {
        self.env.resolve_path(key, path)
    }

    /// What is wrong so far.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Everything that is wrong.
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
        f.debug_struct("Desk").field("problems", &self.problems).finish_non_exhaustive()
    }
}

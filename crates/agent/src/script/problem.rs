//! What is wrong with a script.

use std::fmt;

/// One thing that is wrong, where it stands, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScriptProblem {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// Everything that is wrong with a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptError {
    /// The problems, in the order of their lines; never empty.
    pub problems: Vec<ScriptProblem>,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "line {}: {}", problem.line, problem.message)?;
            if let Some(help) = &problem.help {
                write!(f, "; {help}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for ScriptError {}

/// The known word that was probably meant.
pub(super) fn closest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: String = wanted.chars().take(64).collect();
    let rated = known.into_iter().map(|name| (strsim::normalized_damerau_levenshtein(&wanted, name), name));
    rated.filter(|(likeness, _)| *likeness >= 0.6).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

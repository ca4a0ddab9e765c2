//! The error type of script parsing.

use std::fmt;

/// One problem of a script, with its line and help.
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

/// All problems of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptError {
    /// The problems, in the order of their lines; never empty.
    pub problems: Vec<ScriptProblem>,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
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

//! The error of a config that no tool can be built from.

use std::fmt;

use super::Problem;

/// All problems of the config of a tool; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolConfigError {
    /// The name of the tool.
    pub tool: String,
    /// The problems, each with its key and what to do.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ToolConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid config of tool `{}`: ", self.tool)?;
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ToolConfigError {}

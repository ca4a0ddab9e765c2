//! Why no tool can be made of a config.

use std::fmt;

use super::Problem;

/// Everything that is wrong with the config of a tool; at least one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolConfigError {
    /// What the tool was to be called.
    pub tool: String,
    /// What is wrong, each with its key and what to do.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ToolConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no tool `{}` can be made of its config: ", self.tool)?;
        for (place, problem) in self.problems.iter().enumerate() {
            let between = if place == 0 { "" } else { "; " };
            write!(f, "{between}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ToolConfigError {}

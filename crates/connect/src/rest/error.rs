//! Invalid settings of a REST tool.

/// A setting of a REST tool that cannot work, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{setting}`: {problem}")]
#[non_exhaustive]
pub struct RestError {
    /// The setting, by the name it has in a config: `url`, `headers.X-Trace`, `auth`, `connection.pool_size`.
    pub setting: String,
    /// What is wrong, and what to do.
    pub problem: String,
}

impl RestError {
    pub(crate) fn new(setting: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { setting: setting.into(), problem: problem.into() }
    }
}

//! Why an answer to a question was not taken.

use toolhub_schema::schema;
use toolhub_storage::backend::StoreError;
use toolhub_types::{approval::ApprovalState, ids::ApprovalId, problem::Problem, tool::ToolName};

/// Why an answer was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApprovalError {
    /// There is no such question.
    #[error("there is no approval {0}")]
    Unknown(ApprovalId),
    /// There is no such standing yes.
    #[error("there is no grant `{0}`")]
    UnknownGrant(String),
    /// It was answered before, or its time is over.
    #[error("the approval is {} already; it can be answered once", .0.display_name())]
    Resolved(ApprovalState),
    /// The tool was taken away or changed after the question was asked.
    #[error("`{0}` was taken away or changed since the question was asked; let the call be made again")]
    ToolChanged(ToolName),
    /// The edited arguments do not fit the tool.
    #[error("{}", schema::problems_text(.tool, .problems))]
    Arguments {
        /// The tool.
        tool: ToolName,
        /// What is wrong with which argument.
        problems: Vec<Problem>,
    },
    /// A rule forbids the edited arguments.
    #[error("the edited arguments are forbidden: {0}")]
    Forbidden(String),
    /// The answer does not fit the question.
    #[error("{0}")]
    Answer(&'static str),
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

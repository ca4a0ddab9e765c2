//! Errors of answering an approval or revoking a grant.

use toolhub_schema::schema;
use toolhub_storage::backend::StoreError;
use toolhub_types::{approval::ApprovalState, ids::ApprovalId, problem::Problem, tool::ToolName};

/// Why an answer was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApprovalError {
    /// There is no such approval.
    #[error("there is no approval {0}")]
    Unknown(ApprovalId),
    /// There is no such grant.
    #[error("there is no grant `{0}`")]
    UnknownGrant(String),
    /// The approval was answered before or has expired.
    #[error("{}", resolved_text(*.0))]
    Resolved(ApprovalState),
    /// The tool was removed or changed after the approval was requested.
    #[error("`{0}` was removed or changed since the approval was requested; make the call again")]
    ToolChanged(ToolName),
    /// The edited arguments are invalid for the tool.
    #[error("{}", schema::problems_text(.tool, .problems))]
    Arguments {
        /// The tool.
        tool: ToolName,
        /// The problem of each invalid argument.
        problems: Vec<Problem>,
    },
    /// A rule forbids the edited arguments.
    #[error("the edited arguments are forbidden: {0}")]
    Forbidden(String),
    /// `modify_with_editor` without arguments.
    #[error("`modify_with_editor` needs `arguments`: the arguments to use instead, as a JSON object")]
    ArgumentsMissing,
    /// The answer is not possible for this approval.
    #[error("{0}")]
    Answer(&'static str),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn resolved_text(state: ApprovalState) -> String {
    match state {
        ApprovalState::TimedOut => "the approval expired unanswered; make the call again".to_owned(),
        state => format!("the approval is {} already; it can be answered once", state.display_name()),
    }
}

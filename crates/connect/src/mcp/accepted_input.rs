//! The kinds of input requests that are answered.

use toolhub_core::{CallContext, InputKind};

/// The kinds of input requests that are answered: on a connection, or by the caller of one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AcceptedInput {
    pub(crate) form: bool,
    pub(crate) url: bool,
    pub(crate) sampling: bool,
    pub(crate) roots: bool,
}

impl AcceptedInput {
    /// What the caller of a call answers.
    pub(crate) fn of_caller(context: &CallContext) -> Self {
        Self {
            form: context.accepts_input(InputKind::Form),
            url: context.accepts_input(InputKind::Url),
            sampling: context.accepts_input(InputKind::Sampling),
            roots: context.accepts_input(InputKind::Roots),
        }
    }

    pub(crate) fn contains(self, kind: InputKind) -> bool {
        match kind {
            InputKind::Form => self.form,
            InputKind::Url => self.url,
            InputKind::Sampling => self.sampling,
            InputKind::Roots => self.roots,
            _ => false,
        }
    }
}

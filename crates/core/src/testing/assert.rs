//! Assertions on outcomes that show the whole outcome when they fail.

use serde_json::Value;

use toolhub_types::{effect::Effect, error::ErrorKind, outcome::Outcome};

/// Assertions for tests; each returns what the next one may want to look at.
pub trait AssertOutcome {
    /// The call succeeded; answers its output.
    fn assert_success(&self) -> &Value;
    /// The call failed in this way; answers what a model is told.
    fn assert_error(&self, kind: ErrorKind) -> String;
    /// The call did this to the world.
    fn assert_effect(&self, effect: Effect) -> &Self;
}

impl AssertOutcome for Outcome {
    #[track_caller]
    fn assert_success(&self) -> &Value {
        assert!(self.is_success(), "expected success, got {self:#?}");
        &self.output
    }

    #[track_caller]
    fn assert_error(&self, kind: ErrorKind) -> String {
        assert_eq!(self.error_kind(), Some(kind), "in {self:#?}");
        self.model_text().into_owned()
    }

    #[track_caller]
    fn assert_effect(&self, effect: Effect) -> &Self {
        assert_eq!(self.effect, effect, "in {self:#?}");
        self
    }
}

//! Assertions on outcomes that show the whole outcome when they fail.

use serde_json::Value;

use toolhub_types::{effect::Effect, error::ErrorKind, outcome::Outcome};

/// Assertions on an outcome; each returns what the test may check next.
pub trait AssertOutcome {
    /// Asserts that the call succeeded; returns its output.
    fn assert_success(&self) -> &Value;
    /// Asserts that the call failed with this kind; returns the text for the model.
    fn assert_error(&self, kind: ErrorKind) -> String;
    /// Asserts the call's effect.
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

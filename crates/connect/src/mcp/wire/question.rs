//! A request of a server to its client: an elicitation or a sampling request.
//!
//! In: the request, and the call it belongs to. Out: exactly one answer. A question that is dropped is declined.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use rmcp::model::RequestId;
use serde_json::{Value, json};
use toolhub_core::InputKind;

use super::router::Router;

/// JSON-RPC error codes of replies.
const METHOD_NOT_FOUND: i32 = -32601;
/// The user rejected a sampling request.
const USER_REJECTED: i32 = -1;

/// A question that waits for its answer.
pub(crate) struct Question {
    pub(crate) kind: InputKind,
    /// The raw JSON text of its parameters.
    pub(crate) params: String,
    id: RequestId,
    router: Weak<Router>,
}

impl Question {
    pub(super) fn new(kind: InputKind, params: String, id: RequestId, router: &Arc<Router>) -> Self {
        Self { kind, params, id, router: Arc::downgrade(router) }
    }

    /// Sends the result of the request.
    pub(crate) fn answer(self, result: &Value) {
        self.reply(result_reply(&self.id, result));
    }

    fn reply(&self, text: String) {
        if let Some(router) = self.router.upgrade() {
            router.reply(&self.id, text);
        }
    }
}

impl Drop for Question {
    /// Declines. Has no effect after an answer.
    fn drop(&mut self) {
        self.reply(declined(self.kind, &self.id));
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The parameters are a user's.
        f.debug_struct("Question").field("kind", &self.kind).field("id", &self.id).finish_non_exhaustive()
    }
}

/// The reply that declines a question.
pub(super) fn declined(kind: InputKind, id: &RequestId) -> String {
    match kind {
        InputKind::Sampling => error_reply(id, USER_REJECTED, "the client declined the sampling request"),
        _ => result_reply(id, &json!({"action": "decline"})),
    }
}

pub(super) fn unknown_method(id: &RequestId) -> String {
    error_reply(id, METHOD_NOT_FOUND, "this client does not support the method")
}

pub(super) fn result_reply(id: &RequestId, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

pub(super) fn error_reply(id: &RequestId, code: i32, message: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}).to_string()
}

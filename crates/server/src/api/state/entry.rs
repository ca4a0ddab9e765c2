//! An entry as it is answered: its members, its tag, and what a refusal of the core becomes.

use axum::{
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{AppendHeaders, IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use toolhub_core::{Acknowledged, CallError, ContextId, StateEntry, StateError, StateKind, clock::Timestamp};

use crate::{
    json::Json,
    problem::{Code, Problem},
};

/// One kind of state of one context.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "StateEntry")]
pub(super) struct Entry {
    /// The context and the kind: `{thread}/{state}/{kind}`.
    state_id: String,
    /// `{thread}/{state}`, or `~/{state}` for one that all threads share.
    context_id: ContextId,
    /// The kind of state.
    kind: StateKind,
    /// What is remembered: a JSON object, unless a typed tool wrote something else.
    data: Value,
    /// How often it has been written since it was made; 0 for kind `cache`.
    version: u64,
    /// When it was made.
    created_at: Timestamp,
    /// When it was written last.
    updated_at: Timestamp,
    /// When it ceases to exist; null for never.
    expires_at: Option<Timestamp>,
    /// `behind` where a crash may lose what was just written: the store writes it a moment later.
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<Acknowledged>,
}

impl From<StateEntry> for Entry {
    fn from(entry: StateEntry) -> Self {
        let StateEntry { state_id, context_id, kind, data, created, updated, expires, version, .. } = entry;
        Self {
            state_id: state_id.into(),
            context_id,
            kind,
            data,
            version,
            created_at: created,
            updated_at: updated,
            expires_at: expires,
            durability: None,
        }
    }
}

impl Entry {
    /// The same, with the word about its durability where there is one to say.
    pub(super) fn with_durability(self, acknowledged: Acknowledged) -> Self {
        Self { durability: (acknowledged == Acknowledged::Behind).then_some(acknowledged), ..self }
    }

    /// What tells this entry from what it was before.
    pub(super) fn etag(&self) -> ETag {
        if self.kind != StateKind::Cache {
            return ETag(format!("\"{}\"", self.version));
        }
        // Of a cache no versions are counted, so its content is its tag: weak, because nobody may write by it.
        let mut digest = Sha256::new();
        digest.update(self.data.to_string());
        digest.update(self.expires_at.map_or(0, Timestamp::millis).to_le_bytes());
        let digest = digest.finalize();
        let digits: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        ETag(format!("W/\"{digits}\""))
    }
}

/// An `ETag`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ETag(String);

impl ETag {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// An answer that carries it.
    pub(super) fn attach_to<R: IntoResponse>(self, answer: R) -> impl IntoResponse + use<R> {
        (AppendHeaders([(header::ETAG, self.0)]), answer)
    }
}

/// An entry with its tag.
#[derive(Debug)]
pub(super) struct EntryResponse(pub(super) Entry);

impl IntoResponse for EntryResponse {
    fn into_response(self) -> Response {
        self.0.etag().attach_to(Json(self.0)).into_response()
    }
}

/// An answer without a body, with the word about durability where there is one to say.
pub(super) fn with_durability_header(mut answer: Response, acknowledged: Acknowledged) -> Response {
    if acknowledged == Acknowledged::Behind {
        answer.headers_mut().insert(HeaderName::from_static("durability"), HeaderValue::from_static("behind"));
    }
    answer
}

/// What a refusal of the core is over HTTP.
pub(super) fn state_problem(error: StateError) -> Problem {
    match error {
        StateError::Refused(why) => Problem::new(Code::INVALID_REQUEST, why),
        StateError::Conflict { found, .. } => Problem::from(CallError::from(error.clone())).with("version", found),
        error => Problem::from(CallError::from(error)),
    }
}

/// The same for a write that expected something which is not so.
pub(super) fn precondition_problem(error: StateError) -> Problem {
    match error {
        StateError::Conflict { .. } => state_problem(error).status(StatusCode::PRECONDITION_FAILED.as_u16()),
        error => state_problem(error),
    }
}

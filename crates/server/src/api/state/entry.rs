//! The response form of a state entry: its members, its `ETag`, and the problems of the core's errors.

use axum::{
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{AppendHeaders, IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use toolhub_core::{
    CallError, ContextId, StateEntry, StateError, StateKind, StateTag, WriteDurability, clock::Timestamp, digest,
};

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
    /// The data: a JSON object, unless a typed tool wrote something else. Session cookies of REST tools are not shown.
    data: Value,
    /// How often it was written since it was created; 0 for kind `cache`.
    version: u64,
    /// When it was created.
    created_at: Timestamp,
    /// When it was last written.
    updated_at: Timestamp,
    /// When it expires; null for never.
    expires_at: Option<Timestamp>,
    /// The value for `If-Match`, as in the `ETag` header; absent for kind `cache`. It identifies this write, also if the state
    /// is deleted and created again.
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<StateTag>,
    /// `behind` if a crash may lose this write: the store persists it a moment later (write-behind).
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<WriteDurability>,
}

impl From<StateEntry> for Entry {
    fn from(entry: StateEntry) -> Self {
        let StateEntry { state_id, context_id, kind, mut data, created, updated, expires, version, tag, .. } = entry;
        if context_id.holds_cookies() && kind == StateKind::Cache {
            data = json!({"host": data["host"], "redacted": true});
        }
        Self {
            state_id: state_id.into(),
            context_id,
            kind,
            data,
            version,
            created_at: created,
            updated_at: updated,
            expires_at: expires,
            etag: tag,
            durability: None,
        }
    }
}

impl Entry {
    /// Sets `durability` if the write is not durable yet.
    pub(super) fn with_durability(self, acknowledged: WriteDurability) -> Self {
        Self { durability: (acknowledged == WriteDurability::WriteBehind).then_some(acknowledged), ..self }
    }

    /// The entity tag, which identifies this content of the entry.
    pub(super) fn etag(&self) -> ETag {
        if let Some(tag) = self.etag {
            return ETag(format!("\"{tag}\""));
        }
        // A cache has no versions, so its tag is a digest of its content: weak, because it must not be used for writes.
        let expires_at = self.expires_at.map_or(0, Timestamp::millis).to_le_bytes();
        let digest = digest::concat_sha256_hex([self.data.to_string().as_bytes(), &expires_at]);
        ETag(format!("W/\"{}\"", &digest[..16]))
    }
}

/// An `ETag`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ETag(String);

impl ETag {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// A response that carries it.
    pub(super) fn attach_to<R: IntoResponse>(self, response: R) -> impl IntoResponse + use<R> {
        (AppendHeaders([(header::ETAG, self.0)]), response)
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

/// Adds the `Durability` header if the write is not durable yet.
pub(super) fn with_durability_header(mut response: Response, acknowledged: WriteDurability) -> Response {
    if acknowledged == WriteDurability::WriteBehind {
        response.headers_mut().insert(HeaderName::from_static("durability"), HeaderValue::from_static("behind"));
    }
    response
}

/// The problem for an error of the core.
pub(super) fn state_problem(error: StateError) -> Problem {
    match error {
        StateError::Refused(why) => Problem::new(Code::INVALID_REQUEST, why),
        StateError::Conflict { found, .. } => Problem::from(CallError::from(error.clone())).with("version", found),
        error => Problem::from(CallError::from(error)),
    }
}

/// The same for a write with a precondition: a conflict becomes 412.
pub(super) fn precondition_problem(error: StateError) -> Problem {
    match error {
        StateError::Conflict { .. } => state_problem(error).status(StatusCode::PRECONDITION_FAILED.as_u16()),
        error => state_problem(error),
    }
}

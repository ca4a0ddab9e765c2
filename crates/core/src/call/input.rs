//! Input requests: what a running tool asks its caller for.
//!
//! In: a request of a running tool. Out: the caller's answer. The hub does not read either: an MCP server, for example, asks with
//! the parameters of its protocol, and gets an answer of its protocol.

use futures_core::future::BoxFuture;
use serde_json::Value;

/// What a tool can ask its caller for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InputKind {
    /// Values of a form, which a person fills in.
    Form,
    /// That a person visits an address.
    Url,
    /// A message of the caller's model.
    Sampling,
    /// The folders that the tool may use.
    Roots,
}

/// A request of a running tool to its caller.
#[derive(Debug, Clone, PartialEq)]
pub struct InputRequest {
    /// What it asks for.
    pub kind: InputKind,
    /// The request itself. For a tool of an MCP server, the parameters of `elicitation/create`, `sampling/createMessage` or
    /// `roots/list`.
    pub params: Value,
    /// The tool's own name for it among its open requests. A caller that is shown names sees this one.
    pub key: Option<String>,
}

impl InputRequest {
    /// A request without a name.
    #[must_use]
    pub fn new(kind: InputKind, params: Value) -> Self {
        Self { kind, params, key: None }
    }

    /// Names the request.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
}

/// Answers the input requests of a call's tool; see [`CallRequest::input`](crate::CallRequest::input).
///
/// ```
/// use serde_json::{Value, json};
/// use toolhub_core::{BoxFuture, InputHandler, InputKind, InputRequest};
///
/// struct AlwaysYes;
///
/// impl InputHandler for AlwaysYes {
///     fn accepts(&self, kind: InputKind) -> bool {
///         kind == InputKind::Form
///     }
///
///     fn answer(&self, _: InputRequest) -> BoxFuture<'_, Option<Value>> {
///         Box::pin(async { Some(json!({"action": "accept", "content": {"confirm": true}})) })
///     }
/// }
/// ```
pub trait InputHandler: Send + Sync {
    /// Whether it answers requests of this kind. A tool knows it before it asks, and an MCP server before it is called.
    fn accepts(&self, kind: InputKind) -> bool;

    /// Answers a request; `None` declines it. The future is dropped when the call ends or the request times out.
    fn answer(&self, request: InputRequest) -> BoxFuture<'_, Option<Value>>;

    /// Hears that the tool needs answers to requests of a kind that is not accepted.
    fn missed(&self, _kind: InputKind) {}
}

/// Why an input request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The caller does not answer requests of this kind.
    #[error("the caller cannot answer this input request")]
    Unsupported,
    /// The caller declined.
    #[error("the caller declined the input request")]
    Declined,
    /// The caller did not answer in time.
    #[error("the caller did not answer the input request in time")]
    TimedOut,
    /// The call has ended.
    #[error("the call has ended")]
    Cancelled,
}

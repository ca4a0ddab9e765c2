//! Transports MCP messages, and decides what each message of a server is for.
//!
//! In: requests, most of them of `rmcp`, and bytes of a server. Out: raw answers to the callers that wait for them, updates
//! of running calls, and the few messages that `rmcp` itself needs. `message` parses, `pending` judges ids, `router` decides,
//! `stdio` and `http` move the bytes. Nothing here knows tools or results.

mod cancelled_calls;
mod exchange;
mod forward;
mod http;
mod lifecycle;
mod list_changes;
mod message;
mod notification;
mod outbox;
mod pace;
mod pending;
mod question;
mod router;
mod stdio;
mod surrogates;
mod updates;

#[cfg(test)]
pub(crate) use exchange::RefusedResponse;
pub(crate) use exchange::{Exchange, HttpFailure, RequestError, Unsent, is_busy};
pub(crate) use http::{HttpHandle, HttpSettings, HttpStartError};
pub(crate) use lifecycle::{End, EndCause, Lifecycle};
pub(crate) use list_changes::{ListChanges, UpdatedResources};
pub(crate) use message::{JsonRpcFailure, Violation};
pub(crate) use pending::FIRST_DIRECT_ID;
pub(crate) use question::Question;
pub(crate) use router::Router;
pub(crate) use stdio::{StdioSender, StdioSettings};
#[cfg(test)]
pub(crate) use updates::UpdateReceiver;
pub(crate) use updates::{Update, UpdateSender, updates};
pub(crate) use {http::start as start_http, stdio::start as start_stdio};

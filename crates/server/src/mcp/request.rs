//! What a request to the MCP endpoint is about: its caller, its tools, its thread.
//!
//! Travels through `rmcp` in the extensions of the HTTP request, so that the caller is taken from each request and never from the
//! session.

use std::sync::Arc;

use axum::http::request::Parts;
use rmcp::{ErrorData, RoleServer, service::RequestContext};
use toolhub_core::{Toolset, ids::ThreadId};

use super::sessions::Session;
use crate::scope::Principal;

/// A request to the MCP endpoint.
pub(crate) struct McpRequest {
    pub(crate) principal: Principal,
    /// The tools of the address.
    pub(crate) toolset: Toolset,
    /// The thread of the address.
    pub(crate) thread: Option<ThreadId>,
    /// The session of the legacy era.
    pub(super) session: Option<Arc<Session>>,
    /// The URL of this server, as the client reaches it.
    pub(crate) base_url: String,
}

impl McpRequest {
    pub(crate) fn new(principal: Principal, toolset: Toolset, thread: Option<ThreadId>, base_url: String) -> Self {
        Self { principal, toolset, thread, session: None, base_url }
    }

    /// The request that `rmcp` handles.
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Result<Arc<Self>, ErrorData> {
        let found = context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Arc<Self>>());
        found.cloned().ok_or_else(|| ErrorData::internal_error("the request has no caller", None))
    }

    /// The thread that the address or the session names.
    pub(super) fn fixed_thread(&self) -> Option<&ThreadId> {
        self.thread.as_ref().or_else(|| self.session.as_ref().map(|session| &session.thread))
    }
}

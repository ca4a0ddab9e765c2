//! What a request to the MCP endpoint is about: its caller, its tools, its thread.
//!
//! Travels through `rmcp` in the extensions of the HTTP request, so that the caller is taken from each request and never from the
//! session.

use std::{fmt::Display, sync::Arc};

use axum::http::request::Parts;
use rmcp::{ErrorData, RoleServer, service::RequestContext};
use toolhub_core::{
    Toolset,
    clock::{Clock, SystemClock},
    ids::ThreadId,
};

use super::{configured_toolset::ConfiguredToolset, session::Session};
use crate::{audit, request_info::RequestInfo, scope::Principal, settings::McpMode};

/// What the address of a request names.
pub(crate) struct McpAddress {
    /// Its tools at the time of the request.
    pub(crate) toolset: Toolset,
    /// Where these come from, unless they are all.
    pub(crate) configured: Option<ConfiguredToolset>,
    pub(crate) thread: Option<ThreadId>,
}

/// A request to the MCP endpoint.
pub(crate) struct McpRequest {
    pub(crate) principal: Principal,
    /// The tools of the address.
    pub(crate) toolset: Toolset,
    /// Where these come from, unless they are all.
    pub(super) configured: Option<ConfiguredToolset>,
    /// The thread of the address.
    pub(crate) thread: Option<ThreadId>,
    /// How the tools are shown.
    pub(super) mode: McpMode,
    /// The session of the legacy era.
    pub(super) session: Option<Arc<Session>>,
    /// The URL of this server, as the client reaches it.
    pub(crate) base_url: String,
    /// The path of the HTTP request.
    path: String,
    info: Option<RequestInfo>,
}

impl McpRequest {
    pub(crate) fn new(
        principal: Principal,
        McpAddress { toolset, configured, thread }: McpAddress,
        base_url: String,
        mode: McpMode,
        parts: &Parts,
    ) -> Self {
        let (path, info) = (parts.uri.path().to_owned(), parts.extensions.get::<RequestInfo>().cloned());
        Self { principal, toolset, configured, thread, mode, session: None, base_url, path, info }
    }

    /// An entry of the audit log about something that the request did.
    pub(super) fn audit_entry(&self, act: &str, target: impl Display) -> audit::Entry {
        let now = SystemClock.now();
        audit::Entry {
            id: audit::mint_id(now),
            at: now,
            act: act.into(),
            who: Some(self.principal.caller.clone()),
            tenant: Some(self.principal.tenant.clone()),
            from: self.info.as_ref().and_then(|info| info.peer).map(|peer| peer.ip()),
            method: "POST".into(),
            path: format!("{}#{target}", self.path),
            status: 200,
            request: self.info.as_ref().map(|info| info.id.clone()),
            not_kept: 0,
        }
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

//! What a request to the MCP endpoint is about: its caller, its tools, its thread.
//!
//! Travels through `rmcp` in the extensions of the HTTP request, so that the caller is taken from each request and never from the
//! session.

use std::{fmt::Display, sync::Arc};

use axum::http::request::Parts;
use rmcp::{
    ErrorData, Peer, RoleServer,
    model::{ClientCapabilities, ProtocolVersion, RequestMetaObject, ServerJsonRpcMessage, ServerNotification},
    service::RequestContext,
};
use toolhub_core::{CancellationToken, Toolset, clock::Timestamp, ids::ThreadId};

use super::{configured_toolset::ConfiguredToolset, message_log::MessageLog, session::Session};
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
    /// The URL of the pages of approvals, as the client reaches them.
    pub(crate) approvals_url: String,
    /// The path of the HTTP request.
    path: String,
    /// Whether clients need a key.
    has_keys: bool,
    info: Option<RequestInfo>,
}

impl McpRequest {
    pub(crate) fn new(
        principal: Principal,
        McpAddress { toolset, configured, thread }: McpAddress,
        approvals_url: String,
        mode: McpMode,
        (parts, has_keys): (&Parts, bool),
    ) -> Self {
        let (path, info) = (parts.uri.path().to_owned(), parts.extensions.get::<RequestInfo>().cloned());
        Self { principal, toolset, configured, thread, mode, session: None, approvals_url, path, has_keys, info }
    }

    /// An entry of the audit log about something that the request did.
    pub(super) fn audit_entry(&self, act: &str, target: impl Display, now: Timestamp) -> audit::Entry {
        let peer = self.info.as_ref().and_then(|info| info.peer);
        audit::Entry {
            object: target.to_string(),
            via: Some(audit::Via::of(&self.principal, self.has_keys, peer)),
            id: audit::mint_id(now),
            at: now,
            act: act.into(),
            who: Some(self.principal.caller.clone()),
            tenant: Some(self.principal.tenant.clone()),
            from: peer.map(|peer| peer.ip()),
            method: "POST".into(),
            path: format!("{}#{target}", self.path),
            status: 200,
            request: self.info.as_ref().map(|info| info.id.clone()),
            not_kept: 0,
        }
    }

    /// The thread that the address or the session names.
    pub(super) fn fixed_thread(&self) -> Option<&ThreadId> {
        self.thread.as_ref().or_else(|| self.session.as_ref().map(|session| &session.thread))
    }
}

/// What the handler of a method knows apart from its parameters.
pub(super) struct McpContext {
    pub(super) request: Arc<McpRequest>,
    pub(super) meta: RequestMetaObject,
    /// What the client can do.
    pub(super) capabilities: ClientCapabilities,
    /// Whether the request belongs to protocol version 2026-07-28 or a later one.
    pub(super) is_modern: bool,
    /// Cancelled when the client wants no answer any more.
    pub(super) cancelled: CancellationToken,
    /// Where messages before the answer are sent.
    pub(super) client: ClientChannel,
}

/// Where messages before the answer are sent.
#[derive(Clone)]
pub(super) enum ClientChannel {
    /// The answer is the only message.
    None,
    /// To the service loop of `rmcp`, which can also ask the client.
    Service(Peer<RoleServer>),
    /// To the stream of a request that is served without `rmcp`.
    Log(Arc<MessageLog>),
}

impl ClientChannel {
    /// Sends a notification. In a log it waits for the client to resume its stream; elsewhere it is lost if the client is gone.
    pub(super) async fn notify(&self, notification: ServerNotification) {
        match self {
            Self::None => {}
            Self::Service(peer) => drop(peer.send_notification(notification).await),
            Self::Log(log) => {
                let message = serde_json::to_string(&ServerJsonRpcMessage::notification(notification));
                message.into_iter().for_each(|message| log.push(message));
            }
        }
    }
}

impl McpContext {
    /// The context of a request that `rmcp` handles.
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Result<Self, ErrorData> {
        let found = context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Arc<McpRequest>>());
        let request = found.cloned().ok_or_else(|| ErrorData::internal_error("the request has no caller", None))?;
        let version = context.protocol_version();
        Ok(Self {
            request,
            meta: context.meta.clone(),
            capabilities: context.client_capabilities().unwrap_or_default(),
            is_modern: version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28),
            cancelled: context.ct.clone(),
            client: ClientChannel::Service(context.peer.clone()),
        })
    }
}

//! Sends requests to a program without the service loop of `rmcp`.
//!
//! In: a request. Out: the id it was sent with. On a pipe nothing is left for `rmcp` to do: the router knows what is in flight and
//! delivers the answers. Each call passes fewer tasks and queues, which bench/mcp measures.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientCapabilities, ClientJsonRpcMessage, ClientRequest,
    GetMeta, Implementation, NumberOrString, ProgressToken, ProtocolVersion, RequestId, RequestMetaObject,
};

use crate::mcp::wire::{FIRST_DIRECT_ID, StdioSender};

/// Sends requests with ids of its own.
pub(super) struct DirectRequests {
    sender: StdioSender,
    next_id: AtomicI64,
    /// `_meta` of every request: in the modern era, who the client is.
    meta: RequestMetaObject,
}

impl DirectRequests {
    pub(super) fn new(sender: StdioSender, modern: Option<(Implementation, ClientCapabilities)>) -> Self {
        let mut meta = RequestMetaObject::new();
        if let Some((client, capabilities)) = modern {
            meta.set_protocol_version(ProtocolVersion::V_2026_07_28);
            meta.set_client_info(client);
            meta.set_client_capabilities(capabilities);
        }
        Self { sender, next_id: AtomicI64::new(FIRST_DIRECT_ID), meta }
    }

    /// Queues a request. One that cannot be queued has failed already.
    pub(super) fn send(&self, mut request: ClientRequest, meta: Option<RequestMetaObject>) -> RequestId {
        let id = self.next_id.fetch_add(1, Relaxed);
        let all = request.get_meta_mut();
        all.extend(self.meta.clone());
        all.extend(meta.unwrap_or_default());
        all.set_progress_token(ProgressToken(NumberOrString::Number(id)));
        let id = RequestId::Number(id);
        let _ = self.sender.queue(&ClientJsonRpcMessage::request(request, id.clone()));
        id
    }

    /// Tells the server that the answer of a request is not needed.
    pub(super) fn cancel(&self, id: RequestId) {
        let params = CancelledNotificationParam::new(Some(id), Some("cancelled by the caller".into()));
        let _ = self.sender.queue(&ClientJsonRpcMessage::notification(CancelledNotification::new(params).into()));
    }
}

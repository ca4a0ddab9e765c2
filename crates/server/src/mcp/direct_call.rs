//! Calls made without the service loop of `rmcp`, which takes longer than the call: of the modern era, and of sessions whose client
//! cannot be asked.
//!
//! In: a message. Out: the answer, or nothing if `rmcp` must handle the message: it is no such call, or something about it is wrong.

use std::{pin::pin, sync::Arc};

use axum::{
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use rmcp::{
    ErrorData,
    model::{
        CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientJsonRpcMessage, ErrorCode, ProtocolVersion,
        RequestId, RequestMetaObject, ServerJsonRpcMessage, ServerResult,
    },
};
use tokio::sync::mpsc::UnboundedReceiver;
use toolhub_core::CancellationToken;

use super::{
    call::IDEMPOTENCY_META,
    envelope::{Envelope, MessageId, VERSION_HEADER},
    input::accepted_kinds,
    request::{ClientChannel, McpContext, McpRequest},
    server::HubServer,
    session::{RequestGuard, Session},
};
use crate::json::Json;

/// The method of calls.
const METHOD: &str = "tools/call";
/// The headers that repeat parts of a message.
const METHOD_HEADER: &str = "mcp-method";
const NAME_HEADER: &str = "mcp-name";

/// A call that needs no service loop.
struct DirectCall {
    id: RequestId,
    params: CallToolRequestParams,
    meta: RequestMetaObject,
}

impl DirectCall {
    /// Reads a message of either era.
    fn read(envelope: &Envelope<'_>) -> Option<Self> {
        if envelope.method.as_deref() != Some(METHOD) {
            return None;
        }
        let id = match envelope.id.clone()? {
            MessageId::Number(number) => RequestId::Number(number),
            MessageId::Text(text) => RequestId::String(text.into()),
        };
        let mut params: CallToolRequestParams = serde_json::from_str(envelope.params?.get()).ok()?;
        let meta = params.meta.take().unwrap_or_default();
        let continues = params.request_state.is_some() || params.input_responses.is_some();
        (!continues).then_some(Self { id, params, meta })
    }

    fn answer(id: RequestId, result: Result<CallToolResponse, ErrorData>) -> ServerJsonRpcMessage {
        match result {
            Ok(result) => ServerJsonRpcMessage::response(ServerResult::from(result), id),
            Err(error) => ServerJsonRpcMessage::error(error, Some(id)),
        }
    }
}

/// A call of the modern era whose answer is its only message.
pub(super) struct ModernCall {
    call: DirectCall,
    capabilities: ClientCapabilities,
}

impl ModernCall {
    /// Reads a message of the modern era.
    pub(super) fn read(envelope: &Envelope<'_>, headers: &HeaderMap, server: &HubServer) -> Option<Self> {
        let has = |name: &str, expected: &str| {
            let mut values = headers.get_all(name).iter();
            values.next().is_some_and(|value| value == expected) && values.next().is_none()
        };
        if !has(METHOD_HEADER, METHOD) || !has(VERSION_HEADER, ProtocolVersion::V_2026_07_28.as_str()) {
            return None;
        }
        let call = DirectCall::read(envelope)?;
        let DirectCall { params, meta, .. } = &call;
        // With one of these there may be more messages than the answer, or the call outlives the request.
        let is_plain =
            meta.get_progress_token().is_none() && meta.log_level().is_none() && !meta.contains_key(IDEMPOTENCY_META);
        let is_valid = has(NAME_HEADER, &params.name)
            // A header may have an encoded form; `rmcp` decodes it.
            && !params.name.starts_with("=?")
            && meta.protocol_version() == Some(ProtocolVersion::V_2026_07_28)
            && !server.has_parameter_headers(&params.name);
        let capabilities = meta.client_capabilities()?;
        (is_plain && is_valid).then_some(Self { call, capabilities })
    }

    /// Makes the call. A client that closes its connection cancels it.
    pub(super) async fn answer(self, request: Arc<McpRequest>, server: &HubServer) -> Response {
        let Self { call: DirectCall { id, params, meta }, capabilities } = self;
        let context = McpContext {
            request,
            capabilities,
            meta,
            is_modern: true,
            cancelled: CancellationToken::new(),
            client: ClientChannel::None,
        };
        let result = server.call(params, &context).await;
        let status = match &result {
            Err(error) if error.code == ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        };
        (status, Json(DirectCall::answer(id, result))).into_response()
    }
}

/// A call in a session.
pub(super) struct SessionCall(DirectCall);

impl SessionCall {
    /// Reads a message in a session. If its client can be asked, `rmcp` must match its answers with the questions.
    pub(super) fn read(envelope: &Envelope<'_>, session: &Session) -> Option<Self> {
        if !accepted_kinds(&session.client.capabilities).is_empty() {
            return None;
        }
        let call = DirectCall::read(envelope)?;
        // These replace what the client said at `initialize`.
        let replaces = call.meta.client_capabilities().is_some() || call.meta.protocol_version().is_some();
        (!replaces).then_some(Self(call))
    }

    pub(super) fn id(&self) -> &RequestId {
        &self.0.id
    }

    /// Makes the call; its messages go to the stream of the request.
    pub(super) async fn run(
        self,
        request: Arc<McpRequest>,
        server: HubServer,
        session: Arc<Session>,
        (mut guard, mut inbox): (RequestGuard, UnboundedReceiver<ClientJsonRpcMessage>),
    ) {
        let DirectCall { id, params, meta } = self.0;
        let context = McpContext {
            request,
            capabilities: session.client.capabilities.clone(),
            meta,
            is_modern: false,
            cancelled: session.ended.child_token(),
            client: ClientChannel::Log(guard.log().clone()),
        };
        let mut call = pin!(server.call(params, &context));
        tokio::select! {
            biased;
            mut result = &mut call => {
                if let Ok(CallToolResponse::Complete(result)) = &mut result {
                    // The member came with the modern era.
                    result.result_type = None;
                }
                guard.end(serde_json::to_string(&DirectCall::answer(id, result)).ok());
                return;
            }
            // The only message about a request that asks for nothing is its cancellation.
            _ = inbox.recv() => {}
            () = context.cancelled.cancelled() => {}
        }
        // A cancelled request has no answer. Its call ends in order, and one with an idempotency key goes on.
        guard.end(None);
        context.cancelled.cancel();
        let _ = call.await;
    }
}

//! The transport of one request: `rmcp` serves each request of a session by itself.
//!
//! In: the request, and what its client sends about it later: answers to requests of the server, a cancellation. Out: the messages of
//! the server, in the log of the request. Nothing here waits for a reader.

use std::{convert::Infallible, sync::Arc};

use rmcp::{
    RoleServer,
    model::{ClientJsonRpcMessage, GetMeta, JsonRpcMessage, ProgressToken, ServerNotification},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{
    approvals,
    session::{RequestGuard, Session},
};

pub(super) struct RequestTransport {
    request: Option<ClientJsonRpcMessage>,
    // Bounded by the requests of the server: there is one answer to each, and one cancellation.
    inbox: UnboundedReceiver<ClientJsonRpcMessage>,
    session: Arc<Session>,
    guard: RequestGuard,
}

impl RequestTransport {
    pub(super) fn new(
        request: ClientJsonRpcMessage,
        session: Arc<Session>,
        (guard, inbox): (RequestGuard, UnboundedReceiver<ClientJsonRpcMessage>),
    ) -> Self {
        Self { request: Some(request), inbox, session, guard }
    }
}

impl Transport<RoleServer> for RequestTransport {
    type Error = Infallible;

    // `rmcp` calls this in order and awaits the futures in any order, so the message is added here.
    fn send(
        &mut self,
        mut item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        // `rmcp` counts per request; the client knows the session only.
        match &mut item {
            JsonRpcMessage::Request(request) => {
                let needs_approver = approvals::is_form(&request.request);
                request.id = self.session.add_server_request(self.guard.id(), request.id.clone(), needs_approver);
                let token = ProgressToken(request.id.clone());
                request.request.get_meta_mut().set_progress_token(token);
            }
            JsonRpcMessage::Notification(notification) => {
                if let ServerNotification::CancelledNotification(cancelled) = &mut notification.notification
                    && let Some(id) = &mut cancelled.params.request_id
                {
                    match self.session.withdraw_server_request(self.guard.id(), id) {
                        Some(sent) => *id = sent,
                        // It was answered meanwhile.
                        None => return std::future::ready(Ok(())),
                    }
                }
            }
            _ => {}
        }
        let is_answer = matches!(item, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_));
        match serde_json::to_string(&item) {
            Ok(answer) if is_answer => self.guard.end(Some(answer)),
            Ok(message) => self.guard.log().push(message),
            Err(_) if is_answer => self.guard.end(None),
            Err(_) => {}
        }
        std::future::ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        if let Some(request) = self.request.take() {
            return Some(request);
        }
        if self.guard.has_ended() {
            return None;
        }
        let message = self.inbox.recv().await;
        if matches!(message, Some(JsonRpcMessage::Notification(_))) {
            // The request was cancelled: `rmcp` sends no answer to it.
            self.guard.end(None);
        }
        message
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        self.guard.end(None);
        Ok(())
    }
}

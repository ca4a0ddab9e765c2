//! Sends one request and waits for its answer.
//!
//! In: a request. Out: its raw answer. When the connection ends, the request ends at once; when the future is dropped, the request
//! is cancelled, so that neither the server nor `rmcp` goes on with it.

use std::{sync::Arc, time::Duration};

use rmcp::{
    model::{ClientRequest, GetExtensions, RequestId, RequestMetaObject},
    service::{PeerRequestOptions, RequestHandle, RoleClient},
};
use tokio::{runtime::Handle, sync::oneshot};

use super::{Connection, direct::DirectRequests};
use crate::mcp::wire::{End, EndCause, Exchange, RequestError, UpdateSender};

/// How long a cancellation may take to be queued. Only a connection that is about to end takes longer than an instant.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn send(
    connection: &Connection,
    mut request: ClientRequest,
    meta: Option<RequestMetaObject>,
    updates: Option<UpdateSender>,
) -> Result<String, RequestError> {
    let (exchange, answer) = Exchange::new(updates);
    request.extensions_mut().insert(exchange.clone());
    if let Some(direct) = &connection.direct {
        return send_directly(connection, direct, (request, meta), &exchange, answer).await;
    }
    Box::pin(send_by_sdk(connection, (request, meta), &exchange, answer)).await
}

/// Sends one request with `rmcp`.
async fn send_by_sdk(
    connection: &Connection,
    (request, meta): (ClientRequest, Option<RequestMetaObject>),
    exchange: &Exchange,
    mut answer: oneshot::Receiver<Result<String, RequestError>>,
) -> Result<String, RequestError> {
    let mut options = PeerRequestOptions::no_options();
    options.meta = meta;
    let lifecycle = &connection.lifecycle;
    let lost = |end: Arc<End>, answer: &mut oneshot::Receiver<_>| {
        // The answer may have arrived just before the end.
        answer.try_recv().unwrap_or_else(|_| Err(exchange.lost(end)))
    };
    let queued = tokio::select! {
        biased;
        end = lifecycle.ended() => return Err(exchange.lost(end)),
        queued = connection.running.send_cancellable_request(request, options) => queued,
    };
    let Ok(handle) = queued else { return Err(exchange.lost(connection.end_reason())) };
    let id = handle.id.clone();
    let mut guard = CancelGuard { handle: Some(handle), runtime: Handle::current() };
    let result = tokio::select! {
        biased;
        received = &mut answer => received.unwrap_or_else(|_| Err(exchange.lost(connection.end_reason()))),
        end = lifecycle.ended() => lost(end, &mut answer),
        // The transport has completed the exchange before `rmcp` sees an answer; otherwise `rmcp` gave up.
        () = guard.settled() => {
            let end = lifecycle.reason().unwrap_or_else(|| Arc::new(EndCause::ResponseEnded.into()));
            connection.router.abandon(&id);
            lost(end, &mut answer)
        }
    };
    guard.handle = None;
    result
}

/// Sends one request without `rmcp`.
async fn send_directly(
    connection: &Connection,
    direct: &DirectRequests,
    (request, meta): (ClientRequest, Option<RequestMetaObject>),
    exchange: &Exchange,
    mut answer: oneshot::Receiver<Result<String, RequestError>>,
) -> Result<String, RequestError> {
    let mut guard = DirectGuard { direct, id: Some(direct.send(request, meta)) };
    let result = tokio::select! {
        biased;
        received = &mut answer => received.unwrap_or_else(|_| Err(exchange.lost(connection.end_reason()))),
        // The answer may have arrived just before the end.
        end = connection.lifecycle.ended() => answer.try_recv().unwrap_or_else(|_| Err(exchange.lost(end))),
    };
    guard.id = None;
    result
}

/// Cancels a request whose caller is gone.
struct DirectGuard<'a> {
    direct: &'a DirectRequests,
    id: Option<RequestId>,
}

impl Drop for DirectGuard<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.direct.cancel(id);
        }
    }
}

/// Cancels a request of `rmcp` whose caller is gone.
struct CancelGuard {
    handle: Option<RequestHandle<RoleClient>>,
    runtime: Handle,
}

impl CancelGuard {
    /// Waits until `rmcp` has an answer or gives up.
    async fn settled(&mut self) {
        if let Some(handle) = &mut self.handle {
            let _ = (&mut handle.rx).await;
        }
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // `rmcp` keeps a dropped request for ever; only a cancelled one is forgotten. Bounded by the timeout.
            self.runtime
                .spawn(tokio::time::timeout(CANCEL_TIMEOUT, handle.cancel(Some("cancelled by the caller".into()))));
        }
    }
}

//! Sends requests of the client.
//!
//! In: a request. Out: its answer on stdout. A request whose server is lost is sent to the next one if it was not handled or may be
//! repeated; any other one is answered with an error.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use toolhub_net::{HeaderMap, Response};

use super::{
    bridge::{Bridge, MAX_ATTEMPTS},
    endpoint::Unanswered,
    errors::{INTERNAL_ERROR, error_answer, error_line},
    exchange::{EventMessages, Refusal, Reply, is_answer, is_event_stream, read_text},
    in_flight::PendingRequest,
    message::Message,
};
use crate::failure::Failure;

/// How long a server that is stopping gets before a message is sent again.
const STOPPING_DELAY: Duration = Duration::from_millis(100);
/// The headers of a message do not match it.
const HEADER_MISMATCH: i64 = -32020;

impl Bridge {
    /// Runs a request. Exactly one answer is sent, or none if the client cancelled it.
    pub(super) async fn request(self: Arc<Self>, message: Message, request: Arc<PendingRequest>) {
        let answered = tokio::select! {
            biased;
            // In the modern era a request is cancelled by closing its connection.
            () = request.cancelled.cancelled(), if request.is_modern => Ok(()),
            answered = self.run(&message, &request) => answered,
        };
        self.in_flight.remove(&request.id);
        if let Err(error) = answered
            && !request.cancelled.is_cancelled()
        {
            self.output.send(error).await;
        }
    }

    /// Sends a request until it is answered.
    ///
    /// # Errors
    /// The error that answers it.
    async fn run(&self, message: &Message, request: &PendingRequest) -> Result<(), String> {
        let _permit = self.running.acquire().await;
        let (mut attempts, mut has_learned) = (0, false);
        let unreachable = |failure: Failure| {
            let reason = format!("the hub cannot be reached: {}", failure.message);
            error_line(&request.id, INTERNAL_ERROR, &reason, Some(&failure.code))
        };
        while !request.cancelled.is_cancelled() {
            attempts += 1;
            self.hub.ready().await.map_err(unreachable)?;
            let (epoch, generation) = (self.hub.epoch(), self.session.generation());
            let reply = match self.post(message).await {
                Ok(response) => self.pass_on(message, request, response).await,
                Err(Unanswered { is_unsent: true, reason }) => Reply::Unsent(reason),
                Err(Unanswered { reason, .. }) => Reply::Lost(reason),
            };
            if matches!(reply, Reply::Unsent(_) | Reply::Lost(_)) {
                self.endpoint.close_idle();
                self.hub.report_lost();
            }
            match reply {
                Reply::Passed => return Ok(()),
                Reply::Unsent(_) if attempts < MAX_ATTEMPTS => self.hub.reconnect(epoch).await.map_err(unreachable)?,
                Reply::Lost(_) if message.is_repeatable() && attempts < MAX_ATTEMPTS => {
                    self.hub.reconnect(epoch).await.map_err(unreachable)?;
                    if request.is_endless {
                        attempts = 0;
                    }
                }
                Reply::Unsent(reason) => {
                    return Err(unreachable(Failure::new("unreachable", reason)));
                }
                Reply::Lost(reason) => {
                    let hub = self.hub.clone();
                    self.spawn(async move { drop(hub.reconnect(epoch).await) });
                    let reason = format!(
                        "the connection to the hub was lost while this request was in flight; whether it was carried out is not known ({reason})"
                    );
                    return Err(error_line(&request.id, INTERNAL_ERROR, &reason, Some("interrupted")));
                }
                Reply::Refused(refusal) => {
                    let is_mismatch = refusal.error["code"] == HEADER_MISMATCH && message.method() == "tools/call";
                    match (refusal.code.as_str(), &self.thread) {
                        _ if attempts >= MAX_ATTEMPTS => return Err(error_answer(&request.id, &refusal.error)),
                        ("session_not_found", _) if self.session.is_open() => {
                            self.renew_session(generation).await.map_err(unreachable)?;
                        }
                        ("thread_not_found", Some(thread)) => {
                            self.hub.create_thread(thread).await.map_err(unreachable)?;
                        }
                        ("shutting_down", _) => {
                            tokio::time::sleep(STOPPING_DELAY).await;
                            self.hub.reconnect(epoch).await.map_err(unreachable)?;
                        }
                        _ if is_mismatch && request.is_modern && !has_learned => {
                            has_learned = true;
                            self.learn_tools(message).await;
                        }
                        _ => return Err(error_answer(&request.id, &refusal.error)),
                    }
                }
            }
        }
        Ok(())
    }

    /// Passes the messages of a response on.
    async fn pass_on(&self, message: &Message, request: &PendingRequest, response: Response) -> Reply {
        if request.cancelled.is_cancelled() {
            // The cancellation may have arrived before the request.
            let text =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request.id}});
            if let Ok(cancelled) = Message::parse(text.to_string().into()) {
                let _ = self.notices.send(Some(cancelled)).await;
            }
        }
        let headers = response.headers.clone();
        if is_event_stream(&response) {
            let mut messages = EventMessages::new(response);
            loop {
                match messages.next().await {
                    Ok(Some(text)) if is_answer(&text, &request.id) => {
                        self.answer(message, request, &headers, text).await;
                        // The end of the stream, so that its connection can be used again.
                        let _ = tokio::time::timeout(STOPPING_DELAY, messages.next()).await;
                        return Reply::Passed;
                    }
                    Ok(Some(text)) => self.output.send(text).await,
                    Ok(None) => return Reply::Lost("the event stream ended without an answer".into()),
                    Err(reason) => return Reply::Lost(reason),
                }
            }
        }
        let status = response.status;
        match read_text(response).await {
            Err(reason) => Reply::Lost(reason),
            Ok(text) if !status.is_success() => Reply::Refused(Refusal::read(status, &text)),
            Ok(text) if text.is_empty() => match request.cancelled.is_cancelled() {
                true => Reply::Passed,
                false => Reply::Refused(Refusal::read(status, "")),
            },
            Ok(text) => {
                self.answer(message, request, &headers, text).await;
                Reply::Passed
            }
        }
    }

    /// Passes an answer on, and takes from it what later messages need.
    async fn answer(&self, message: &Message, request: &PendingRequest, headers: &HeaderMap, text: String) {
        match message.method() {
            "initialize" => self.session.opened(&message.text, headers, &text),
            "tools/list" => self.param_headers.learn(&text),
            _ => {}
        }
        // The client may use the id again as soon as it has read the answer.
        self.in_flight.remove(&request.id);
        if !request.cancelled.is_cancelled() {
            self.output.send(text).await;
        }
    }
}

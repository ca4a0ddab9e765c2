//! Sends requests of the client.
//!
//! In: a request. Out: its answer on stdout. A request whose server is lost is sent to the next one if it was not handled or may be
//! repeated; any other one is answered with an error.

use std::{pin::pin, sync::Arc, time::Duration};

use serde_json::json;
use toolhub_net::{HeaderMap, Response};

use super::{
    bridge::{Bridge, MAX_ATTEMPTS},
    endpoint::Unanswered,
    errors::{INTERNAL_ERROR, INVALID_PARAMS, error_answer, error_line, interrupted},
    exchange::{
        EventMessages, Refusal, Reply, is_answer, is_event_stream, is_inconclusive, is_result, missed_changes,
        read_text,
    },
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
        let slots = if message.is_quick() { &self.quick } else { &self.running };
        let _permit = slots.acquire().await;
        let (mut attempts, mut has_learned, mut was_lost) = (0, false, false);
        let unreachable = |failure: Failure| {
            let context = if failure.code == "unreachable" { "the hub cannot be reached: " } else { "" };
            error_line(&request.id, INTERNAL_ERROR, &format!("{context}{}", failure.message), Some(&failure.code))
        };
        while !request.cancelled.is_cancelled() {
            attempts += 1;
            self.hub.ready().await.map_err(unreachable)?;
            if let Some(failure) = self.hub.unresponsiveness() {
                return Err(unreachable(failure));
            }
            let (epoch, generation) = (self.hub.epoch(), self.session.generation());
            let reply = self.exchange(message, request, was_lost).await;
            if matches!(reply, Reply::Unsent(_) | Reply::Lost(_)) {
                self.endpoint.close_idle();
                self.hub.report_lost();
            }
            match reply {
                Reply::Passed => return Ok(()),
                Reply::Unsent(_) if attempts < MAX_ATTEMPTS => self.hub.reconnect(epoch).await.map_err(unreachable)?,
                Reply::Silent(failure) if message.is_repeatable() => return Err(unreachable(failure)),
                Reply::Silent(failure) => return Err(interrupted(&request.id, &failure.message)),
                Reply::Lost(_) if message.is_repeatable() && attempts < MAX_ATTEMPTS => {
                    was_lost = true;
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
                    return Err(interrupted(&request.id, &reason));
                }
                Reply::Refused(refusal)
                    if was_lost && message.method() == "tools/call" && refusal.error["code"] == INVALID_PARAMS =>
                {
                    return Err(interrupted(&request.id, "its server stopped"));
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

    /// Sends a request once, and passes the messages of the response on. `was_lost`: it was sent before, and its server is gone.
    async fn exchange(&self, message: &Message, request: &PendingRequest, was_lost: bool) -> Reply {
        let mut exchange = pin!(async {
            match self.post(message).await {
                Ok(response) => self.pass_on(message, request, response, was_lost).await,
                Err(Unanswered { is_unsent: true, reason }) => Reply::Unsent(reason),
                Err(Unanswered { reason, .. }) => Reply::Lost(reason),
            }
        });
        tokio::select! {
            biased;
            reply = &mut exchange => reply,
            // What only the client ends goes on with the server.
            failure = self.hub.unresponsive(), if !request.is_endless => match self.in_flight.contains(request) {
                true => Reply::Silent(failure),
                // It is just being answered.
                false => exchange.await,
            },
        }
    }

    /// Passes the messages of a response on.
    async fn pass_on(&self, message: &Message, request: &PendingRequest, response: Response, was_lost: bool) -> Reply {
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
                        if request.is_endless && is_result(&text) && !self.hub.is_staying().await {
                            // The client need not know that its server stops.
                            tokio::time::sleep(STOPPING_DELAY).await;
                            return Reply::Lost("the server ended the subscription".into());
                        }
                        self.answer(message, request, &headers, text, was_lost).await;
                        // The end of the stream, so that its connection can be used again.
                        let _ = tokio::time::timeout(STOPPING_DELAY, messages.next()).await;
                        return Reply::Passed;
                    }
                    Ok(Some(text)) => {
                        let missed = if was_lost { missed_changes(&text) } else { Vec::new() };
                        for message in [text].into_iter().chain(missed) {
                            self.output.send(message).await;
                        }
                    }
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
                self.answer(message, request, &headers, text, was_lost).await;
                Reply::Passed
            }
        }
    }

    /// Passes an answer on, and takes from it what later messages need.
    async fn answer(
        &self,
        message: &Message,
        request: &PendingRequest,
        headers: &HeaderMap,
        mut text: String,
        was_lost: bool,
    ) {
        match message.method() {
            "tools/call" if was_lost && is_inconclusive(&text) => {
                text = interrupted(&request.id, "its server stopped");
            }
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

//! Reads an event stream of a server.
//!
//! In: the response to a POST or a GET. Out: to the router each message, and to `rmcp` the answers and event ids, which it needs to
//! resume a broken stream. Only the stream's own request may be answered on it.

use std::{collections::VecDeque, time::Duration};

use futures_util::stream::{self, BoxStream, StreamExt};
use rmcp::{
    model::{ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage},
    transport::streamable_http_client::SseError,
};
use sse_stream::Sse;
use toolhub_core::offload;
use toolhub_net::{SseDecoder, SseEvent};

use super::client::HttpClient;
use crate::{
    mcp::wire::{
        exchange::RequestError, forward::Received, message::Violation, pace::NotificationPace, router::Origin,
    },
    rest::OpenResponse,
};

/// The delays that a server may ask for before a stream is resumed.
const MIN_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(30);

pub(super) fn events(
    response: OpenResponse,
    client: HttpClient,
    origin: Origin,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let decoder = SseDecoder::new(client.max_message());
    let reader = EventReader {
        response,
        client,
        origin,
        decoder,
        ready: VecDeque::new(),
        phase: Phase::Open,
        resume_at: (None, None),
        pace: NotificationPace::new(),
    };
    stream::unfold(reader, async |mut reader| {
        let event = reader.next().await?;
        Some((event, reader))
    })
    .boxed()
}

/// The event id that `rmcp` gets, and gives back to resume a stream. It names the request too: ids of two streams may be equal.
fn join_event_id(origin: Origin, event: &str) -> String {
    match origin {
        Origin::Stream(request) => format!("{request}/{event}"),
        Origin::Pipe | Origin::Unassociated => format!("/{event}"),
    }
}

/// The request and the event id of the server.
pub(super) fn split_event_id(joined: &str) -> (Option<i64>, Option<&str>) {
    let (request, event) = joined.split_once('/').unzip();
    (request.and_then(|request| request.parse().ok()), event)
}

/// The milliseconds before a stream is resumed whose server asks for this delay.
fn resume_delay(asked: Duration) -> u64 {
    u64::try_from(asked.clamp(MIN_RETRY, MAX_RETRY).as_millis()).unwrap_or(u64::MAX)
}

struct EventReader {
    response: OpenResponse,
    client: HttpClient,
    origin: Origin,
    decoder: SseDecoder,
    ready: VecDeque<Sse>,
    phase: Phase,
    /// The event id and the delay that `rmcp` has.
    resume_at: (Option<String>, Option<Duration>),
    pace: NotificationPace,
}

#[derive(PartialEq)]
enum Phase {
    Open,
    /// The request has its answer. The rest is read only so that the connection can be reused.
    Answered,
    Ended,
}

impl EventReader {
    async fn next(&mut self) -> Option<Result<Sse, SseError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.phase == Phase::Ended {
                return None;
            }
            let client = self.client.clone();
            let chunk = tokio::select! {
                biased;
                () = client.lifecycle().close_requested() => return None,
                chunk = self.response.chunk() => chunk,
            };
            match chunk {
                Ok(Some(bytes)) if self.phase == Phase::Open => match self.decoder.feed(&bytes) {
                    Ok(events) => self.handle(events).await,
                    Err(too_long) => self.too_long(too_long.0),
                },
                Ok(Some(_)) => {}
                // Also after an error: `rmcp` would open the next stream without any delay, again and again.
                Ok(None) | Err(_) => self.end(),
            }
        }
    }

    fn end(&mut self) {
        if self.phase == Phase::Open {
            self.client.check_address();
        }
        self.phase = Phase::Ended;
        if matches!(self.origin, Origin::Unassociated) {
            // Notifications may be lost until there is another stream.
            self.client.router().list_may_have_changed();
        }
    }

    async fn handle(&mut self, events: Vec<SseEvent>) {
        for event in events {
            let is_message = matches!(event.name.as_str(), "" | "message");
            if !is_message || event.data.trim().is_empty() || self.phase != Phase::Open {
                continue;
            }
            let (router, origin) = (self.client.router().clone(), self.origin);
            let handled = offload::run(event.data.len(), move || router.incoming(&event.data, origin)).await;
            match handled {
                Ok(Received::Forward(message)) => self.pass_on(&message),
                Ok(Received::Answer | Received::Other) => self.pace.count().await,
                Err(violation) => self.violated(violation),
            }
        }
        self.pass_on_event_id();
    }

    /// Only answers, and what belongs to a subscription, is for `rmcp`.
    fn pass_on(&mut self, message: &ServerJsonRpcMessage) {
        let is_answer = matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_));
        if matches!(self.origin, Origin::Stream(_)) && is_answer {
            self.phase = Phase::Answered;
        }
        if let Ok(text) = serde_json::to_string(message) {
            self.ready.push_back(Sse::default().data(text));
        }
    }

    /// The stream cannot be used any more. Its request fails; notifications of other streams go on.
    fn violated(&mut self, violation: Violation) {
        if let Origin::Stream(request) = self.origin {
            self.client.router().fail(request, RequestError::Invalid(violation));
            let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, "protocol violation", None);
            self.pass_on(&JsonRpcMessage::error(error, Some(RequestId::Number(request))));
        }
    }

    /// Nothing that follows can be decoded.
    fn too_long(&mut self, limit: usize) {
        self.violated(Violation::TooLong { limit });
        if self.phase == Phase::Open {
            // Late, because the next stream may begin with the same event.
            self.ready.push_back(Sse { retry: Some(resume_delay(MAX_RETRY)), ..Sse::default() });
            self.end();
        }
    }

    fn pass_on_event_id(&mut self) {
        let resume_at = (self.decoder.last_event_id().map(String::from), self.decoder.retry());
        if self.phase != Phase::Open || resume_at == self.resume_at {
            return;
        }
        let id = resume_at.0.as_deref().map(|id| join_event_id(self.origin, id));
        let retry = resume_at.1.map(resume_delay);
        self.ready.push_back(Sse { id, retry, ..Sse::default() });
        self.resume_at = resume_at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_resumed_after_a_second_at_the_earliest_and_half_a_minute_at_the_latest() {
        let delays = [0, 10, 1_000, 7_000, 30_000, u64::MAX].map(|asked| resume_delay(Duration::from_millis(asked)));
        assert_eq!(delays, [1_000, 1_000, 1_000, 7_000, 30_000, 30_000]);
    }
}

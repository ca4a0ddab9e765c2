//! A stream of server-sent events, from either transport.
//!
//! In: chunks of bytes. Out: events in order, each with its name and JSON data. `toolhub-net` decodes the wire format.

use std::collections::VecDeque;

use axum::body::BodyDataStream;
use futures_util::StreamExt as _;
use serde_json::Value;
use toolhub_net::{Response, SseDecoder, SseEvent};

use super::ApiResponse;
use crate::failure::Failure;

/// Maximum size of an event; a toolhub server sends none that is larger.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    /// Its name.
    pub(crate) name: String,
    /// Its parsed data.
    pub(crate) data: Value,
    /// Its data as sent.
    pub(crate) text: String,
}

/// The response to a request for a stream.
pub(crate) enum StreamResponse {
    /// An event stream.
    Events(EventStream),
    /// Any other response, usually a problem.
    Response(ApiResponse),
}

/// A stream of events.
pub(crate) struct EventStream {
    source: ByteSource,
    decoder: SseDecoder,
    /// Decoded events that `next` has not returned yet.
    decoded: VecDeque<SseEvent>,
}

pub(super) enum ByteSource {
    /// From a remote server.
    Remote(Box<Response>),
    /// From the router in this process.
    InProcess(BodyDataStream),
}

impl EventStream {
    pub(super) fn new(source: ByteSource) -> Self {
        Self { source, decoder: SseDecoder::new(MAX_EVENT_BYTES), decoded: VecDeque::new() }
    }

    /// The next event; `None` at the end of the stream.
    ///
    /// # Errors
    /// When the stream breaks, or is not an event stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(event) = self.decoded.pop_front() {
                return Event::decode(event).map(Some);
            }
            let stream_failed =
                |why: String| Failure::new("unreachable", format!("the event stream was interrupted: {why}"));
            let chunk = match &mut self.source {
                ByteSource::Remote(response) => {
                    response.chunk().await.map_err(|error| stream_failed(error.to_string()))?
                }
                ByteSource::InProcess(body) => {
                    body.next().await.transpose().map_err(|error| stream_failed(error.to_string()))?
                }
            };
            match chunk {
                Some(chunk) => {
                    self.decoded
                        .extend(self.decoder.feed(&chunk).map_err(|error| unexpected_stream(&error.to_string()))?);
                }
                None => return Ok(None),
            }
        }
    }
}

impl Event {
    fn decode(event: SseEvent) -> Result<Self, Failure> {
        let data = serde_json::from_str(&event.data).map_err(|_| unexpected_stream("an event is not JSON"))?;
        Ok(Self { name: event.name, data, text: event.data })
    }
}

fn unexpected_stream(why: &str) -> Failure {
    Failure::unexpected(why).help("is this the URL of a toolhub server?")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The events of a stream whose bytes arrive in these chunks.
    async fn collect_events(chunks: &[&[u8]]) -> Result<Vec<(String, Value)>, Failure> {
        let chunks: Vec<_> = chunks.iter().map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec())).collect();
        let body = axum::body::Body::from_stream(futures_util::stream::iter(chunks));
        let (mut events, mut all) = (EventStream::new(ByteSource::InProcess(body.into_data_stream())), Vec::new());
        while let Some(event) = events.next().await? {
            all.push((event.name, event.data));
        }
        Ok(all)
    }

    #[tokio::test]
    async fn events_are_the_same_however_their_bytes_arrive() {
        let text = "retry: 2000\n\n: ka\n\nid: 7\nevent: message.delta\ndata: {\"text\":\"ü: x\"}\n\nevent: a\r\ndata: [1,\r\ndata: 2]\r\n\r\n";
        let expected = vec![("message.delta".to_owned(), json!({"text": "ü: x"})), ("a".to_owned(), json!([1, 2]))];
        assert_eq!(collect_events(&[text.as_bytes()]).await, Ok(expected.clone()));
        for at in 0..text.len() {
            let (first, second) = text.as_bytes().split_at(at);
            assert_eq!(collect_events(&[first, second]).await, Ok(expected.clone()), "cut at {at}");
        }
    }

    #[tokio::test]
    async fn what_is_no_event_of_ours_is_told() {
        assert!(collect_events(&[b"data: not json\n\n"]).await.is_err());
        assert!(collect_events(&[&vec![b'x'; MAX_EVENT_BYTES + 1]]).await.is_err());
    }
}

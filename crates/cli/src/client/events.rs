//! A stream of server-sent events, from either transport.
//!
//! In: bytes as they come. Out: events one after another, each with its name and its document. `toolhub-net` decodes the format.

use std::collections::VecDeque;

use axum::body::BodyDataStream;
use futures_util::StreamExt as _;
use serde_json::Value;
use toolhub_net::{Response, SseDecoder, SseEvent};

use super::ApiResponse;
use crate::failure::Failure;

/// An event is not longer than this; one that is belongs to no server of ours.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    /// Its name.
    pub(crate) name: String,
    /// What it tells.
    pub(crate) data: Value,
    /// The same as it was written.
    pub(crate) text: String,
}

/// What came back where a stream was asked for.
pub(crate) enum StreamResponse {
    /// The stream.
    Events(EventStream),
    /// Something else, mostly a problem.
    Response(ApiResponse),
}

/// Events as they come.
pub(crate) struct EventStream {
    source: ByteSource,
    decoder: SseDecoder,
    /// Decoded, and not handed out yet.
    decoded: VecDeque<SseEvent>,
}

pub(super) enum ByteSource {
    /// Over the network.
    Remote(Box<Response>),
    /// Inside this process.
    InProcess(BodyDataStream),
}

impl EventStream {
    pub(super) fn new(source: ByteSource) -> Self {
        Self { source, decoder: SseDecoder::new(MAX_EVENT_BYTES), decoded: VecDeque::new() }
    }

    /// The next event; none at the end.
    ///
    /// # Errors
    /// When the stream broke off, or is none.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(event) = self.decoded.pop_front() {
                return Event::decode(event).map(Some);
            }
            let broke = |why: String| Failure::new("unreachable", format!("the stream of events broke off: {why}"));
            let piece = match &mut self.source {
                ByteSource::Remote(answer) => answer.chunk().await.map_err(|error| broke(error.to_string()))?,
                ByteSource::InProcess(body) => {
                    body.next().await.transpose().map_err(|error| broke(error.to_string()))?
                }
            };
            match piece {
                Some(piece) => {
                    self.decoded
                        .extend(self.decoder.feed(&piece).map_err(|error| unexpected_stream(&error.to_string()))?);
                }
                None => return Ok(None),
            }
        }
    }
}

impl Event {
    fn decode(event: SseEvent) -> Result<Self, Failure> {
        let data = serde_json::from_str(&event.data).map_err(|_| unexpected_stream("an event is no JSON"))?;
        Ok(Self { name: event.name, data, text: event.data })
    }
}

fn unexpected_stream(why: &str) -> Failure {
    Failure::unexpected(why).help("is this the address of a toolhub server?")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The events of a stream whose bytes come in these pieces.
    async fn collect_events(pieces: &[&[u8]]) -> Result<Vec<(String, Value)>, Failure> {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect();
        let body = axum::body::Body::from_stream(futures_util::stream::iter(pieces));
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

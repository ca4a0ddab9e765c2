//! A stream of server-sent events, from either way.
//!
//! In: bytes as they come. Out: events one after another, each with its name and its document. Comments, ids and everything else that
//! the format allows are passed over.

use axum::body::BodyDataStream;
use futures_util::StreamExt as _;
use serde_json::Value;

use super::Answer;
use crate::failure::Failure;

/// An event is not longer than this; one that is belongs to no server of ours.
const LARGEST: usize = 16 << 20;

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
pub(crate) enum Streamed {
    /// The stream.
    Events(Events),
    /// Something else, mostly a problem.
    Answer(Answer),
}

/// Events as they come.
pub(crate) struct Events {
    source: Source,
    reader: Reader,
}

pub(super) enum Source {
    /// Over the network.
    Remote(Box<reqwest::Response>),
    /// Inside this process.
    Here(BodyDataStream),
}

impl Events {
    pub(super) fn new(source: Source) -> Self {
        Self { source, reader: Reader::default() }
    }

    /// The next event; none at the end.
    ///
    /// # Errors
    /// When the stream broke off, or is none.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(event) = self.reader.next()? {
                return Ok(Some(event));
            }
            let broke = |why: String| Failure::new("unreachable", format!("the stream of events broke off: {why}"));
            let piece = match &mut self.source {
                Source::Remote(answer) => {
                    answer.chunk().await.map_err(|error| broke(error.without_url().to_string()))?
                }
                Source::Here(body) => body.next().await.transpose().map_err(|error| broke(error.to_string()))?,
            };
            match piece {
                Some(piece) => self.reader.take(&piece),
                None => return Ok(None),
            }
        }
    }
}

/// Takes lines apart.
#[derive(Debug, Default)]
struct Reader {
    bytes: Vec<u8>,
    name: String,
    data: Vec<String>,
}

impl Reader {
    fn take(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// The next event that is whole.
    fn next(&mut self) -> Result<Option<Event>, Failure> {
        while let Some(line) = self.line() {
            if let Some(event) = self.read(&line)? {
                return Ok(Some(event));
            }
        }
        if self.bytes.len() + self.data.iter().map(String::len).sum::<usize>() > LARGEST {
            return Err(Failure::unexpected("an event is too long").help("is this the address of a toolhub server?"));
        }
        Ok(None)
    }

    /// The next whole line, without its end: a line feed, or a carriage return before one.
    fn line(&mut self) -> Option<String> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.bytes.drain(..=end).collect();
        let line = String::from_utf8_lossy(&line).into_owned();
        Some(line.trim_end_matches(['\n', '\r']).to_owned())
    }

    fn read(&mut self, line: &str) -> Result<Option<Event>, Failure> {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = value.to_owned(),
            "data" => self.data.push(value.to_owned()),
            "" if line.is_empty() => {
                let (name, lines) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
                if lines.is_empty() {
                    return Ok(None);
                }
                let text = lines.join("\n");
                let data = serde_json::from_str(&text).map_err(|_| {
                    Failure::unexpected("an event is no JSON").help("is this the address of a toolhub server?")
                })?;
                return Ok(Some(Event { name, data, text }));
            }
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<(String, Value)> {
        let (mut reader, mut all) = (Reader::default(), Vec::new());
        for piece in pieces {
            reader.take(piece);
            while let Some(event) = reader.next().unwrap() {
                all.push((event.name, event.data));
            }
        }
        all
    }

    #[test]
    fn events_are_the_same_however_their_bytes_arrive() {
        let text = "retry: 2000\n\n: ka\n\nid: 7\nevent: message.delta\ndata: {\"text\":\"ü: x\"}\n\nevent: a\r\ndata: [1,\r\ndata: 2]\r\n\r\n";
        let expected = vec![("message.delta".to_owned(), json!({"text": "ü: x"})), ("a".to_owned(), json!([1, 2]))];
        assert_eq!(read(&[text.as_bytes()]), expected);
        for at in 0..text.len() {
            let (first, second) = text.as_bytes().split_at(at);
            assert_eq!(read(&[first, second]), expected, "cut at {at}");
        }
    }

    #[test]
    fn what_is_no_event_of_ours_is_told() {
        let mut reader = Reader::default();
        reader.take(b"data: not json\n\n");
        assert!(reader.next().is_err());
        let mut reader = Reader::default();
        reader.take(&vec![b'x'; LARGEST + 1]);
        assert!(reader.next().is_err());
    }
}

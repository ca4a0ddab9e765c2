//! Decodes a stream of server-sent events.
//!
//! In: bytes, split at any position. Out: events with name and data, and what is needed to resume the stream. Does not interpret the data. Memory is bounded, whatever the
//! service sends.

use std::time::Duration;

/// Longer event ids are not kept.
const MAX_ID_LENGTH: usize = 1024;

/// One server-sent event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Its name; empty if it has none.
    pub name: String,
    /// Its data, with lines joined by a newline.
    pub data: String,
}

/// Decoder of one stream; buffers the incomplete event.
#[derive(Debug)]
pub struct SseDecoder {
    /// Maximum length of a line and of an event.
    max_length: usize,
    /// The incomplete line.
    line: Vec<u8>,
    /// The last byte was a carriage return: a following line feed belongs to it.
    after_cr: bool,
    name: String,
    data: Option<String>,
    /// Of the incomplete event: it must not be skipped when the stream is resumed.
    id: Option<String>,
    last_id: Option<String>,
    retry: Option<Duration>,
}

/// A line or event exceeds the maximum length, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an SSE event is longer than {0} bytes")]
pub struct EventTooLong(pub usize);

impl SseDecoder {
    /// A decoder with a maximum length of lines and events.
    #[must_use]
    pub fn new(max_length: usize) -> Self {
        Self {
            max_length,
            line: Vec::new(),
            after_cr: false,
            name: String::new(),
            data: None,
            id: None,
            last_id: None,
            retry: None,
        }
    }

    /// Returns the events that these bytes complete.
    ///
    /// # Errors
    /// When an event is too long; the stream cannot be decoded further.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, EventTooLong> {
        let mut events = Vec::new();
        for &byte in bytes {
            let is_line_end = byte == b'\r' || (byte == b'\n' && !self.after_cr);
            let is_lf_of_crlf = byte == b'\n' && self.after_cr;
            self.after_cr = byte == b'\r';
            if is_line_end {
                events.extend(self.end_line()?);
            } else if !is_lf_of_crlf {
                if self.line.len() == self.max_length {
                    return Err(EventTooLong(self.max_length));
                }
                self.line.push(byte);
            }
        }
        Ok(events)
    }

    /// The id of the last whole event: where to resume the stream.
    #[must_use]
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// How long to wait before the stream is resumed, as the service asks for.
    #[must_use]
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    fn end_line(&mut self) -> Result<Option<SseEvent>, EventTooLong> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_start_matches('\u{feff}');
        if line.is_empty() {
            let name = std::mem::take(&mut self.name);
            self.last_id = self.id.take().or(self.last_id.take());
            return Ok(self.data.take().map(|data| SseEvent { name, data }));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = value.to_owned(),
            "data" => match &mut self.data {
                Some(data) if data.len() + value.len() >= self.max_length => {
                    return Err(EventTooLong(self.max_length));
                }
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "id" if value.len() <= MAX_ID_LENGTH && !value.contains('\0') => self.id = Some(value.to_owned()),
            "retry" => self.retry = value.parse().map(Duration::from_millis).ok().or(self.retry),
            // Comments have an empty field name.
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1024;

    #[track_caller]
    fn check(stream: &str, expected: &[(&str, &str)]) {
        let expected: Vec<SseEvent> =
            expected.iter().map(|(name, data)| SseEvent { name: (*name).into(), data: (*data).into() }).collect();
        assert_eq!(SseDecoder::new(LIMIT).feed(stream.as_bytes()), Ok(expected.clone()), "{stream:?}");
        let mut decoder = SseDecoder::new(LIMIT);
        let single: Vec<SseEvent> = stream.bytes().flat_map(|byte| decoder.feed(&[byte]).unwrap()).collect();
        assert_eq!(single, expected, "{stream:?}, byte by byte");
    }

    #[test]
    fn events_are_told_apart_however_lines_end() {
        check("data: a\n\ndata: b\n\n", &[("", "a"), ("", "b")]);
        check("data: a\r\n\r\ndata: b\r\n\r\n", &[("", "a"), ("", "b")]);
        check("data: a\r\rdata: b\r\r", &[("", "a"), ("", "b")]);
        check("event: ping\ndata: {}\n\n", &[("ping", "{}")]);
    }

    #[test]
    fn lines_of_data_are_joined_and_comments_are_not_heard() {
        check(": keep-alive\n\ndata:a\ndata\ndata:  b\nid: 7\n\n", &[("", "a\n\n b")]);
        check("\u{feff}data: é🙂\n\n", &[("", "é🙂")]);
    }

    #[test]
    fn what_resumes_a_stream_is_kept() {
        let mut decoder = SseDecoder::new(LIMIT);
        assert_eq!(decoder.feed(b"id: 7\nretry: 250\n\nretry: soon\n\n"), Ok(vec![]));
        assert_eq!((decoder.last_event_id(), decoder.retry()), (Some("7"), Some(Duration::from_millis(250))));
    }

    #[test]
    fn the_id_of_an_incomplete_event_is_not_where_to_resume() {
        let mut decoder = SseDecoder::new(LIMIT);
        assert_eq!(decoder.feed(b"id: 7\ndata: a\n\nid: 8\ndata: b\n").unwrap().len(), 1);
        assert_eq!(decoder.last_event_id(), Some("7"));
        assert_eq!(decoder.feed(b"\n").unwrap().len(), 1);
        assert_eq!(decoder.last_event_id(), Some("8"));
        // Without an id of its own, an event has the id of the event before.
        assert_eq!(decoder.feed(b"data: c\n\n").unwrap().len(), 1);
        assert_eq!(decoder.last_event_id(), Some("8"));
    }

    #[test]
    fn what_has_no_end_is_no_event() {
        check("data: a\n", &[]);
        check("event: lonely\n\n", &[]);
    }

    #[test]
    fn a_line_without_an_end_is_given_up() {
        let mut events = SseDecoder::new(LIMIT);
        assert_eq!(events.feed(&vec![b'x'; LIMIT]), Ok(vec![]));
        assert_eq!(events.feed(b"x"), Err(EventTooLong(LIMIT)));
    }
}

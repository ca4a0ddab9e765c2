//! Decodes a stream of server-sent events.
//!
//! In: bytes, however they were cut. Out: events, each with its name and its data. Knows nothing of what is in them. Nothing here
//! grows past its bound, whatever is sent.

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Its name; empty where it has none.
    pub name: String,
    /// Its data, lines joined.
    pub data: String,
}

/// Decodes one stream: holds what has come so far and is no event yet.
#[derive(Debug)]
pub struct SseDecoder {
    /// No line, and no event, is longer than this.
    max_length: usize,
    /// The line that has not ended.
    line: Vec<u8>,
    /// The last byte was a carriage return: a line feed after it belongs to it.
    after_cr: bool,
    name: String,
    data: Option<String>,
}

/// An event is longer than it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is too long")]
pub struct EventTooLong;

impl SseDecoder {
    /// A decoder that takes no line and no event longer than this.
    #[must_use]
    pub fn new(max_length: usize) -> Self {
        Self { max_length, line: Vec::new(), after_cr: false, name: String::new(), data: None }
    }

    /// The events that end in these bytes.
    ///
    /// # Errors
    /// When an event is too long; the stream cannot be read on.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, EventTooLong> {
        let mut ended = Vec::new();
        for &byte in bytes {
            let ends = byte == b'\r' || (byte == b'\n' && !self.after_cr);
            let second_half = byte == b'\n' && self.after_cr;
            self.after_cr = byte == b'\r';
            if ends {
                ended.extend(self.end_line()?);
            } else if !second_half {
                if self.line.len() == self.max_length {
                    return Err(EventTooLong);
                }
                self.line.push(byte);
            }
        }
        Ok(ended)
    }

    fn end_line(&mut self) -> Result<Option<SseEvent>, EventTooLong> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_start_matches('\u{feff}');
        if line.is_empty() {
            let name = std::mem::take(&mut self.name);
            return Ok(self.data.take().map(|data| SseEvent { name, data }));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = value.to_owned(),
            "data" => match &mut self.data {
                Some(data) if data.len() + value.len() >= self.max_length => return Err(EventTooLong),
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            // Comments have no name before the colon; ids and times to come back after are not for us.
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
        let mut events = SseDecoder::new(LIMIT);
        let single: Vec<SseEvent> = stream.bytes().flat_map(|byte| events.feed(&[byte]).unwrap()).collect();
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
    fn what_has_no_end_is_no_event() {
        check("data: a\n", &[]);
        check("event: lonely\n\n", &[]);
    }

    #[test]
    fn a_line_without_an_end_is_given_up() {
        let mut events = SseDecoder::new(LIMIT);
        assert_eq!(events.feed(&vec![b'x'; LIMIT]), Ok(vec![]));
        assert_eq!(events.feed(b"x"), Err(EventTooLong));
    }
}

//! Takes a stream of events apart, as servers send them.
//!
//! In: bytes, however they were cut. Out: events, each with its name and its data. Knows nothing of what is in them. Nothing here
//! grows past its bound, whatever is sent.

/// No line, and no event, is longer than this.
const LONGEST: usize = 4 * 1024 * 1024;

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// Its name; empty where it has none.
    pub(super) name: String,
    /// Its data, lines joined.
    pub(super) data: String,
}

/// What has come so far and is no event yet.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// The line that has not ended.
    line: Vec<u8>,
    /// The last byte was a carriage return: a line feed after it belongs to it.
    after_return: bool,
    name: String,
    data: Option<String>,
}

/// An event that does not end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Events {
    /// The events that end in these bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Event>, TooLong> {
        let mut ended = Vec::new();
        for &byte in bytes {
            let ends = byte == b'\r' || (byte == b'\n' && !self.after_return);
            let second_half = byte == b'\n' && self.after_return;
            self.after_return = byte == b'\r';
            if ends {
                ended.extend(self.line_ends()?);
            } else if !second_half {
                if self.line.len() == LONGEST {
                    return Err(TooLong);
                }
                self.line.push(byte);
            }
        }
        Ok(ended)
    }

    fn line_ends(&mut self) -> Result<Option<Event>, TooLong> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_start_matches('\u{feff}');
        if line.is_empty() {
            let name = std::mem::take(&mut self.name);
            return Ok(self.data.take().map(|data| Event { name, data }));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = value.to_owned(),
            "data" => match &mut self.data {
                Some(data) if data.len() + value.len() >= LONGEST => return Err(TooLong),
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

    #[track_caller]
    fn check(stream: &str, expected: &[(&str, &str)]) {
        let expected: Vec<Event> =
            expected.iter().map(|(name, data)| Event { name: (*name).into(), data: (*data).into() }).collect();
        assert_eq!(Events::default().feed(stream.as_bytes()), Ok(expected.clone()), "{stream:?}");
        let mut events = Events::default();
        let single: Vec<Event> = stream.bytes().flat_map(|byte| events.feed(&[byte]).unwrap()).collect();
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
        let mut events = Events::default();
        assert_eq!(events.feed(&vec![b'x'; LONGEST]), Ok(vec![]));
        assert_eq!(events.feed(b"x"), Err(TooLong));
    }
}

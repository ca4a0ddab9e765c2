//! Lines of stdin and stdout.
//!
//! Both are read and written on threads of their own: a blocked read would keep the runtime from ending, and a client that does not
//! read must not block it.

use std::{
    io::{self, Write as _},
    thread,
    time::Duration,
};

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::line_ends::LineEnds;

/// Lines that were read and not handled yet.
const MAX_READ_AHEAD: usize = 16;
/// Lines that wait for the client to read.
const MAX_UNREAD: usize = 256;
/// How long the last lines may take to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// A line of input.
pub(super) enum Line {
    /// A line without its end.
    Text(Vec<u8>),
    /// It was longer than the limit, and was skipped; with the id of its request, if it has one.
    TooLong { limit: usize, id: Value },
}

/// Reads stdin until its end.
pub(super) fn read_stdin(limit: usize) -> mpsc::Receiver<Line> {
    let (sender, lines) = mpsc::channel(MAX_READ_AHEAD);
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        // A failed read is the end.
        while let Ok(Some(line)) = read_line(&mut input, limit) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// The next line; `None` at the end. Holds little more than `limit` bytes.
fn read_line(input: &mut impl io::BufRead, limit: usize) -> io::Result<Option<Line>> {
    let (mut line, mut length, mut ends) = (Vec::new(), 0_usize, LineEnds::default());
    loop {
        let buffer = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            buffer => buffer?,
        };
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = &buffer[..end.unwrap_or(buffer.len())];
        let (is_end_of_input, used) = (buffer.is_empty(), part.len() + usize::from(end.is_some()));
        length += part.len();
        if length <= limit {
            line.extend_from_slice(part);
        } else {
            ends.push(&line);
            ends.push(part);
            line = Vec::new();
        }
        input.consume(used);
        match (end, is_end_of_input) {
            (None, true) if length == 0 => return Ok(None),
            (None, false) => {}
            _ if length > limit => return Ok(Some(Line::TooLong { limit, id: ends.request_id() })),
            _ => return Ok(Some(Line::Text(line))),
        }
    }
}

/// Writes messages to stdout.
#[derive(Clone)]
pub(super) struct Output(mpsc::Sender<String>);

/// Ends when all messages were written.
pub(super) struct Written(oneshot::Receiver<()>);

/// Starts to write to stdout, until every [`Output`] is dropped or stdout is closed.
pub(super) fn write_stdout() -> (Output, Written) {
    let (sender, mut lines) = mpsc::channel::<String>(MAX_UNREAD);
    let (done, written) = oneshot::channel::<()>();
    thread::spawn(move || {
        let mut output = io::stdout().lock();
        while let Some(line) = lines.blocking_recv() {
            let sent = output.write_all(line.as_bytes()).and_then(|()| output.write_all(b"\n"));
            if sent.and_then(|()| output.flush()).is_err() {
                break;
            }
        }
        drop(done);
    });
    (Output(sender), Written(written))
}

impl Output {
    /// Writes a message. Without effect once stdout is closed.
    pub(super) async fn send(&self, message: impl Into<String>) {
        let mut line = message.into();
        // Between the parts of a JSON text a line break means nothing, and inside of them there is none.
        if line.contains(['\n', '\r']) {
            line = line.replace(['\n', '\r'], " ");
        }
        let _ = self.0.send(line).await;
    }

    /// Resolves when stdout is closed.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }
}

impl Written {
    pub(super) async fn wait(self) {
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, self.0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_line_breaks_and_long_ones_are_skipped() {
        let text = b"one\n\n123456\r\n1234567\n12345678\nlast";
        let mut input = io::BufReader::with_capacity(3, &text[..]);
        let mut lines = Vec::new();
        while let Some(line) = read_line(&mut input, 7).unwrap() {
            lines.push(match line {
                Line::Text(line) => String::from_utf8(line).unwrap(),
                Line::TooLong { limit, .. } => format!("longer than {limit}"),
            });
        }
        assert_eq!(lines, ["one", "", "123456\r", "1234567", "longer than 7", "last"]);
    }
}

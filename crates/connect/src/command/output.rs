//! Reads a program's stdout, within limits on size and line length.
//!
//! In: bytes. Out: single lines, or the whole output, or [`LimitExceeded`]. All functions are cancel-safe.

use std::{future::poll_fn, pin::Pin, task::Poll};

use tokio::{
    io::{AsyncRead, AsyncReadExt, ReadBuf},
    process::ChildStdout,
};

/// Size of one read.
const CHUNK_SIZE: usize = 16 * 1024;

/// The stdout of one process.
pub(super) struct Output {
    pipe: ChildStdout,
    unread: Vec<u8>,
    /// `unread[..scanned]` contains no newline.
    scanned: usize,
    /// Bytes received during the current call.
    call_bytes: usize,
}

/// The program wrote more than a limit allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitExceeded {
    /// In total, during one call.
    Output(usize),
    /// In one line.
    Line(usize),
}

impl Output {
    pub(super) fn new(pipe: ChildStdout) -> Self {
        Self { pipe, unread: Vec::new(), scanned: 0, call_bytes: 0 }
    }

    /// Reads until end of file.
    pub(super) async fn read_to_end(&mut self, max_output: usize) -> Result<(), LimitExceeded> {
        while self.read_chunk(max_output).await? {}
        Ok(())
    }

    /// The next complete line, without its newline; `None` at end of file.
    pub(super) async fn next_line(
        &mut self,
        max_output: usize,
        max_line: usize,
    ) -> Result<Option<Vec<u8>>, LimitExceeded> {
        loop {
            let end = self.unread[self.scanned..].iter().position(|byte| *byte == b'\n');
            let length = end.map_or(self.unread.len(), |end| self.scanned + end);
            if length > max_line {
                return Err(LimitExceeded::Line(max_line));
            }
            if end.is_some() {
                let rest = self.unread.split_off(length + 1);
                let mut line = std::mem::replace(&mut self.unread, rest);
                line.truncate(length);
                self.scanned = 0;
                return Ok(Some(line));
            }
            self.scanned = length;
            if !self.read_chunk(max_output).await? {
                return Ok(None);
            }
        }
    }

    /// Bytes received and not yet returned as lines.
    pub(super) fn unread(&self) -> &[u8] {
        &self.unread
    }

    /// Takes the bytes received and not yet returned as lines.
    pub(super) fn take_unread(&mut self) -> Vec<u8> {
        self.scanned = 0;
        std::mem::take(&mut self.unread)
    }

    /// Resets the byte count for a new call. Returns whether the program has written nothing, as required before a request.
    pub(super) async fn begin_call(&mut self) -> bool {
        self.call_bytes = 0;
        let mut byte = [0; 1];
        let is_silent = poll_fn(|cx| {
            let mut buffer = ReadBuf::new(&mut byte);
            Poll::Ready(Pin::new(&mut self.pipe).poll_read(cx, &mut buffer).is_pending())
        });
        is_silent.await && self.unread.is_empty()
    }

    async fn read_chunk(&mut self, max_output: usize) -> Result<bool, LimitExceeded> {
        self.unread.reserve(CHUNK_SIZE);
        // A read error counts as end of file.
        let count = (&mut self.pipe).take(CHUNK_SIZE as u64).read_buf(&mut self.unread).await.unwrap_or(0);
        self.call_bytes += count;
        if self.call_bytes > max_output { Err(LimitExceeded::Output(max_output)) } else { Ok(count > 0) }
    }
}

//! What a program writes to its output, read no further than it may go.
//!
//! In: bytes. Out: lines, or everything, or that it is too much. Every wait may be cut off and taken up again.

use std::{future::poll_fn, pin::Pin, task::Poll};

use tokio::{
    io::{AsyncRead, AsyncReadExt, ReadBuf},
    process::ChildStdout,
};

/// How much is read at once.
const CHUNK_SIZE: usize = 16 * 1024;

/// The output of one process.
pub(super) struct Output {
    pipe: ChildStdout,
    unread: Vec<u8>,
    /// Up to here there is no end of a line in what is unread.
    scanned: usize,
    /// How much came during this call.
    call_bytes: usize,
}

/// More than it may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitExceeded {
    /// In all, during one call.
    Output(usize),
    /// In one line.
    Line(usize),
}

impl Output {
    pub(super) fn new(pipe: ChildStdout) -> Self {
        Self { pipe, unread: Vec::new(), scanned: 0, call_bytes: 0 }
    }

    /// Reads until it ends.
    pub(super) async fn read_to_end(&mut self, most: usize) -> Result<(), LimitExceeded> {
        while self.read_chunk(most).await? {}
        Ok(())
    }

    /// The next whole line, without its end; `None` when there will be none.
    pub(super) async fn next_line(&mut self, most: usize, longest: usize) -> Result<Option<Vec<u8>>, LimitExceeded> {
        loop {
            let end = self.unread[self.scanned..].iter().position(|byte| *byte == b'\n');
            let length = end.map_or(self.unread.len(), |end| self.scanned + end);
            if length > longest {
                return Err(LimitExceeded::Line(longest));
            }
            if end.is_some() {
                let rest = self.unread.split_off(length + 1);
                let mut line = std::mem::replace(&mut self.unread, rest);
                line.truncate(length);
                self.scanned = 0;
                return Ok(Some(line));
            }
            self.scanned = length;
            if !self.read_chunk(most).await? {
                return Ok(None);
            }
        }
    }

    /// What came and was not taken as a line.
    pub(super) fn unread(&self) -> &[u8] {
        &self.unread
    }

    /// Another call begins. Says whether the program is silent, as it must be until it is asked.
    pub(super) async fn begin_call(&mut self) -> bool {
        self.call_bytes = 0;
        let mut byte = [0; 1];
        let nothing = poll_fn(|cx| {
            let mut buffer = ReadBuf::new(&mut byte);
            Poll::Ready(Pin::new(&mut self.pipe).poll_read(cx, &mut buffer).is_pending())
        });
        nothing.await && self.unread.is_empty()
    }

    async fn read_chunk(&mut self, most: usize) -> Result<bool, LimitExceeded> {
        self.unread.reserve(CHUNK_SIZE);
        // A pipe that cannot be read is one that has ended.
        let came = (&mut self.pipe).take(CHUNK_SIZE as u64).read_buf(&mut self.unread).await.unwrap_or(0);
        self.call_bytes += came;
        if self.call_bytes > most { Err(LimitExceeded::Output(most)) } else { Ok(came > 0) }
    }
}

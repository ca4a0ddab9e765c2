//! What a program writes to its output, read no further than it may go.
//!
//! In: bytes. Out: lines, or everything, or that it is too much. Every wait may be cut off and taken up again.

use std::{future::poll_fn, pin::Pin, task::Poll};

use tokio::{
    io::{AsyncRead, AsyncReadExt, ReadBuf},
    process::ChildStdout,
};

/// How much is read at once.
const CHUNK: usize = 16 * 1024;

/// The output of one process.
pub(super) struct Output {
    pipe: ChildStdout,
    unread: Vec<u8>,
    /// Up to here there is no end of a line in what is unread.
    looked: usize,
    /// How much came during this call.
    came: usize,
}

/// More than it may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TooMuch {
    /// In all, during one call.
    Output(usize),
    /// In one line.
    Line(usize),
}

impl Output {
    pub(super) fn of(pipe: ChildStdout) -> Self {
        Self { pipe, unread: Vec::new(), looked: 0, came: 0 }
    }

    /// Reads until it ends.
    pub(super) async fn everything(&mut self, most: usize) -> Result<(), TooMuch> {
        while self.more(most).await? {}
        Ok(())
    }

    /// The next whole line, without its end; `None` when there will be none.
    pub(super) async fn line(&mut self, most: usize, longest: usize) -> Result<Option<Vec<u8>>, TooMuch> {
        loop {
            let end = self.unread[self.looked..].iter().position(|byte| *byte == b'\n');
            let length = end.map_or(self.unread.len(), |end| self.looked + end);
            if length > longest {
                return Err(TooMuch::Line(longest));
            }
            if end.is_some() {
                let rest = self.unread.split_off(length + 1);
                let mut line = std::mem::replace(&mut self.unread, rest);
                line.truncate(length);
                self.looked = 0;
                return Ok(Some(line));
            }
            self.looked = length;
            if !self.more(most).await? {
                return Ok(None);
            }
        }
    }

    /// What came and was not taken as a line.
    pub(super) fn unread(&self) -> &[u8] {
        &self.unread
    }

    /// Another call begins. Says whether the program is silent, as it must be until it is asked.
    pub(super) async fn next_call(&mut self) -> bool {
        self.came = 0;
        let mut byte = [0; 1];
        let nothing = poll_fn(|cx| {
            let mut buffer = ReadBuf::new(&mut byte);
            Poll::Ready(Pin::new(&mut self.pipe).poll_read(cx, &mut buffer).is_pending())
        });
        nothing.await && self.unread.is_empty()
    }

    async fn more(&mut self, most: usize) -> Result<bool, TooMuch> {
        self.unread.reserve(CHUNK);
        // A pipe that cannot be read is one that has ended.
        let came = (&mut self.pipe).take(CHUNK as u64).read_buf(&mut self.unread).await.unwrap_or(0);
        self.came += came;
        if self.came > most { Err(TooMuch::Output(most)) } else { Ok(came > 0) }
    }
}

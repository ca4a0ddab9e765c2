//! Answers that are being written to clients: how much of each is unread, and since when.
//!
//! In: the parts of an answer as hyper takes them and writes them. Out: the bytes that are held for the client, and the
//! time of its last progress. hyper may hold a part for long, above all in an HTTP/2 stream whose client grants no window:
//! a part counts until it is dropped, and it is dropped when it was written.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::body::Bytes;
use tokio_util::sync::CancellationToken;

use super::{Connections, conn_state::InFlight, streams::OpenStream};

/// Memory of an answer besides its body: the task, the headers and the state of its HTTP/2 stream, roughly.
const ANSWER_OVERHEAD: usize = 4 << 10;

/// The progress of one answer.
#[derive(Debug)]
pub(super) struct Progress {
    /// Bytes that are ready and not written.
    unwritten: AtomicUsize,
    /// Bytes of them that exist for this answer only. A static page is the same memory for all clients.
    held: AtomicUsize,
    /// When a part of it was written, or became ready while none was; in milliseconds since the listener started.
    last: AtomicU64,
    stream: Option<StreamProgress>,
}

/// What only event streams have.
#[derive(Debug)]
pub(super) struct StreamProgress {
    /// Cancelled to end it.
    pub(super) end: CancellationToken,
    /// How long the client may leave it unread, if that is less than the server's timeout.
    pub(super) unread_timeout: Option<Duration>,
}

impl Progress {
    pub(super) fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    pub(super) fn end_stream(&self) {
        self.stream.iter().for_each(|stream| stream.end.cancel());
    }

    /// How long the client may leave it unread; `timeout` is the server's.
    pub(super) fn unread_timeout(&self, timeout: Duration) -> Duration {
        let own = self.stream.as_ref().and_then(|stream| stream.unread_timeout);
        own.map_or(timeout, |own| own.min(timeout))
    }

    /// Since when the client has not read it.
    pub(super) fn unread_since(&self) -> Option<u64> {
        (self.unwritten.load(SeqCst) > 0).then(|| self.last.load(SeqCst))
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held.load(SeqCst) + ANSWER_OVERHEAD
    }
}

/// An answer that is not completely written. It and the request are in flight until this and all its parts are dropped.
#[derive(Debug)]
pub(crate) struct Answer {
    progress: Arc<Progress>,
    connections: Arc<Connections>,
    in_flight: InFlight,
    _stream: Option<OpenStream>,
}

impl Answer {
    pub(super) fn new(
        connections: Arc<Connections>,
        in_flight: InFlight,
        stream: Option<(OpenStream, StreamProgress)>,
    ) -> Self {
        let (open, stream) = stream.unzip();
        let last = AtomicU64::new(in_flight.0.elapsed_millis());
        let progress = Arc::new(Progress { unwritten: AtomicUsize::new(0), held: AtomicUsize::new(0), last, stream });
        in_flight.0.add_answer(progress.clone());
        connections.add_held(ANSWER_OVERHEAD);
        Self { progress, connections, in_flight, _stream: open }
    }

    /// These bytes are ready to be written. Returns them in parts of at most `size`; a part counts as written when it is
    /// dropped.
    pub(crate) fn parts(self: &Arc<Self>, bytes: Bytes, size: usize) -> Parts {
        let is_held = bytes.is_unique();
        if !bytes.is_empty() && self.progress.unwritten.fetch_add(bytes.len(), SeqCst) == 0 {
            self.progress.last.store(self.in_flight.0.elapsed_millis(), SeqCst);
        }
        if is_held {
            self.progress.held.fetch_add(bytes.len(), SeqCst);
            self.connections.add_held(bytes.len());
        }
        Parts { rest: bytes, size, is_held }
    }
}

/// Bytes of an answer that hyper has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    rest: Bytes,
    size: usize,
    is_held: bool,
}

impl Parts {
    /// How many bytes are left.
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    /// The next part; empty if there is none.
    pub(crate) fn next(&mut self, answer: &Arc<Answer>) -> Bytes {
        let bytes = self.rest.split_to(self.rest.len().min(self.size));
        if bytes.is_empty() {
            return bytes;
        }
        Bytes::from_owner(Part { bytes, is_held: self.is_held, answer: answer.clone() })
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.in_flight.0.remove_answer(&self.progress);
        self.connections.sub_held(self.progress.held_bytes());
    }
}

/// A part of an answer in the hands of hyper.
struct Part {
    bytes: Bytes,
    is_held: bool,
    answer: Arc<Answer>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let progress = &self.answer.progress;
        progress.last.store(self.answer.in_flight.0.elapsed_millis(), SeqCst);
        progress.unwritten.fetch_sub(self.bytes.len(), SeqCst);
        if self.is_held {
            progress.held.fetch_sub(self.bytes.len(), SeqCst);
            self.answer.connections.sub_held(self.bytes.len());
        }
    }
}

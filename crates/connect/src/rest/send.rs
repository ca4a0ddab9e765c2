//! Sends one request and begins to read its answer.
//!
//! In: a pool, and what goes over the wire. Out: the head of the answer, and its body to be read within bounds. Each step has a time of its own:
//! waiting for a turn, connecting, writing, and every silence while the service answers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Body, Incoming},
    header::{CONTENT_LENGTH, HOST, HeaderValue},
};
use toolhub_core::{CallContext, ToolError};

use super::{
    origin::Origin,
    request::Outgoing,
    trouble::Trouble,
    unpack::Unpacker,
    upstream::{DialError, Leased, Line, Pool, Turn},
};

/// The way of a request.
pub(crate) struct Way<'a> {
    pub(crate) origin: &'a Origin,
    pub(crate) pool: &'a Arc<Pool>,
    /// How long the service may be silent.
    pub(crate) silence: Duration,
    /// How long it may take no bytes.
    pub(crate) stuck: Duration,
    /// Whether anything has left.
    pub(crate) left: &'a AtomicBool,
    /// The call that waits, as long as nothing has left for it.
    pub(crate) call: Option<&'a CallContext>,
}

/// An answer whose body is still to be read.
pub(crate) struct Opened {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    leased: Leased,
    pool: Arc<Pool>,
    silence: Duration,
    stuck: Duration,
    turn: Option<Turn>,
}

/// How much of a body is read.
#[derive(Clone, Copy)]
pub(crate) struct Most {
    pub(crate) bytes: usize,
    pub(crate) unpacked: usize,
    /// Whether what is too long is cut and not refused.
    pub(crate) cut: bool,
}

/// As much of a body as is read only so that its connection can be used again.
pub(crate) const UNWANTED: Most = Most { bytes: 16 * 1024, unpacked: 16 * 1024, cut: true };

/// The longest path with its query; whoever reads addresses of HTTP takes no longer ones.
const LONGEST_TARGET: usize = 65_534;

/// Sends a request.
pub(crate) async fn open(way: &Way<'_>, outgoing: &Outgoing, turn: Option<Turn>) -> Result<Opened, Trouble> {
    let mut leased = way.connected(way.pool.lease()).await?;
    loop {
        let request = make(way.origin, outgoing)?;
        leased.line.stir();
        let before = way.left.swap(true, Ordering::Relaxed);
        let sent = tokio::select! {
            biased;
            answer = leased.sender.try_send_request(request) => answer,
            () = leased.line.silence(way.silence) => return Err(Trouble::ReadLate(way.silence)),
        };
        let mut failed = match sent {
            Ok(answer) => return Ok(Opened::new(answer, way, leased, turn)),
            Err(failed) => failed,
        };
        if leased.line.is_stuck() {
            return Err(Trouble::WriteLate(way.stuck));
        }
        // A service may close a connection at the moment it is used again. Then nothing of the request has left, or it may be
        // sent twice.
        let unsent = failed.take_message().is_some();
        if !(leased.used && (unsent || may_repeat(&outgoing.method))) {
            return Err(broken(failed.error()));
        }
        if unsent {
            way.left.store(before, Ordering::Relaxed);
        }
        leased = way.connected(way.pool.dial()).await?;
    }
}

impl Way<'_> {
    /// Waits for a connection. If the time is up before anything has left, nothing has happened.
    async fn connected(&self, lease: impl Future<Output = Result<Leased, DialError>>) -> Result<Leased, Trouble> {
        let leased = match self.call.filter(|_| !self.left.load(Ordering::Relaxed)) {
            Some(call) => call.before_it_begins(lease).await.map_err(|error| Trouble::Told(Box::new(error)))?,
            None => lease.await,
        };
        leased.map_err(Trouble::from)
    }
}

/// Whether doing it twice is the same as once.
fn may_repeat(method: &Method) -> bool {
    method.is_idempotent()
}

fn make(origin: &Origin, outgoing: &Outgoing) -> Result<Request<Full<hyper::body::Bytes>>, Trouble> {
    let wrong = |why: String| Trouble::Broken(format!("no request can be made of this: {why}"));
    // Only arguments make it so long, and they say nothing against the service.
    if outgoing.target.len() > LONGEST_TARGET {
        let text = format!("The arguments are too long: the address they make has more than {LONGEST_TARGET} bytes.");
        return Err(Trouble::Told(Box::new(ToolError::refused(text))));
    }
    let uri: hyper::Uri = outgoing.target.parse().map_err(|error| wrong(format!("{error}")))?;
    let mut request = Request::new(Full::new(outgoing.body.clone()));
    *request.method_mut() = outgoing.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = outgoing.headers.clone();
    let host = HeaderValue::from_str(&origin.authority()).map_err(|error| wrong(error.to_string()))?;
    request.headers_mut().insert(HOST, host);
    Ok(request)
}

fn broken(error: &hyper::Error) -> Trouble {
    let mut text = format!("the service broke off or does not speak HTTP: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause {
        text = format!("{text}: {deeper}");
        cause = deeper.source();
    }
    Trouble::Broken(text)
}

impl From<DialError> for Trouble {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Forbidden(why) => Self::Forbidden(why),
            DialError::Late(time) => Self::ConnectLate(time),
            DialError::Unreachable(why) => Self::Unreachable(why),
        }
    }
}

impl Opened {
    fn new(answer: Response<Incoming>, way: &Way<'_>, leased: Leased, turn: Option<Turn>) -> Self {
        let (head, body) = answer.into_parts();
        let (pool, silence, stuck) = (way.pool.clone(), way.silence, way.stuck);
        Self { status: head.status, headers: head.headers, body, leased, pool, silence, stuck, turn }
    }

    /// Reads a body nobody wants, as far as that is cheaper than a new connection; answers the turn.
    pub(crate) async fn discard(mut self) -> Option<Turn> {
        let turn = self.turn.take();
        let _ = self.read(UNWANTED).await;
        turn
    }

    /// Reads the body, unpacked. A connection whose answer was read to its end serves the next request.
    pub(crate) async fn read(self, most: Most) -> Result<Vec<u8>, Trouble> {
        let Self { mut body, headers, leased, pool, silence, stuck, .. } = self;
        if body.is_end_stream() {
            // Without a body it does not matter how one would be packed; the answer to a HEAD says that too.
            pool.give_back(leased);
            return Ok(Vec::new());
        }
        let too_large = Trouble::TooLarge { most: most.bytes, unpacked: false };
        let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if !most.cut && length.is_some_and(|length| length > most.bytes) {
            return Err(too_large);
        }
        let mut unpacker = Unpacker::new(&headers, most)?;
        let mut read = 0_usize;
        while let Some(bytes) = next(&mut body, &leased.line, silence, stuck).await? {
            read = read.saturating_add(bytes.len());
            if read > most.bytes {
                if most.cut {
                    return unpacker.finish();
                }
                return Err(too_large);
            }
            if !unpacker.push(&bytes)? {
                return unpacker.finish();
            }
        }
        pool.give_back(leased);
        if read == 0 { Ok(Vec::new()) } else { unpacker.finish() }
    }
}

/// The next bytes of a body; `None` at its end.
async fn next(
    body: &mut Incoming,
    line: &Line,
    silence: Duration,
    stuck: Duration,
) -> Result<Option<hyper::body::Bytes>, Trouble> {
    loop {
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame,
            () = line.silence(silence) => return Err(Trouble::ReadLate(silence)),
        };
        match frame {
            None => return Ok(None),
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
            Some(Err(_)) if line.is_stuck() => return Err(Trouble::WriteLate(stuck)),
            Some(Err(error)) => return Err(broken(&error)),
        }
    }
}

//! The end of a connection: why it ended, told at once to everything that waits for it.
//!
//! In: the first reason. Out: a signal. `rmcp` reports an end only after its own clean-up, so nothing here depends on it.

use std::{fmt, sync::Arc};

use tokio::sync::watch;

use super::message::Violation;
use crate::command::ProcessExit;

/// Why a connection ended.
#[derive(Debug, Clone)]
pub(crate) struct End {
    pub(crate) cause: EndCause,
    /// The end of what the program wrote to stderr, without its secrets.
    pub(crate) stderr: String,
}

/// What ended a connection.
#[derive(Debug, Clone)]
pub(crate) enum EndCause {
    /// The program exited.
    Exited(ProcessExit),
    /// The server violated the protocol.
    Violation(Violation),
    /// The server refused the credentials, with this HTTP status.
    Unauthorized(u16),
    /// The address accepts no connection.
    Unreachable(String),
    /// The server has ended the session.
    SessionExpired,
    /// The response ended before the answer of its request; the connection goes on.
    ResponseEnded,
    /// The server answers no request.
    Unresponsive,
    /// Toolhub closed the connection.
    Closed,
}

impl From<EndCause> for End {
    fn from(cause: EndCause) -> Self {
        Self { cause, stderr: String::new() }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            EndCause::Exited(exit) if exit.is_start_failure() => f.write_str("the server could not be started"),
            EndCause::Exited(exit) => write!(f, "the server {exit}"),
            EndCause::Violation(violation) => write!(f, "the server violated the MCP protocol: {violation}"),
            EndCause::Unauthorized(status) => write!(
                f,
                "the server answered {status}: it needs a login, which is not supported yet; set `auth`, or correct it"
            ),
            EndCause::Unreachable(reason) => write!(f, "the server is gone: {reason}"),
            EndCause::SessionExpired => f.write_str("the server ended the session"),
            EndCause::ResponseEnded => f.write_str("the server ended its response early"),
            EndCause::Unresponsive => f.write_str("the server does not answer"),
            EndCause::Closed => f.write_str("the connection was closed"),
        }
    }
}

impl End {
    /// The last line that the program wrote to stderr. Only for administrators: it may say something about the calls of any tenant.
    pub(crate) fn stderr_line(&self) -> Option<&str> {
        self.stderr.lines().map(str::trim).rfind(|line| !line.is_empty())
    }
}

/// The state of one connection, shared by its tasks and its users.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    end: watch::Sender<Option<Arc<End>>>,
    closing: watch::Sender<bool>,
    released: watch::Sender<bool>,
}

impl Lifecycle {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            end: watch::Sender::new(None),
            closing: watch::Sender::new(false),
            released: watch::Sender::new(false),
        })
    }

    /// Ends the connection. Only the first reason counts.
    pub(crate) fn end(&self, end: impl Into<End>) {
        self.end.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                *current = Some(Arc::new(end.into()));
            }
            first
        });
    }

    /// Why the connection ended, if it did.
    pub(crate) fn reason(&self) -> Option<Arc<End>> {
        self.end.borrow().clone()
    }

    /// Waits until the connection has ended.
    pub(crate) async fn ended(&self) -> Arc<End> {
        let mut end = self.end.subscribe();
        let reason = end.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        reason.unwrap_or_else(|| Arc::new(EndCause::Closed.into()))
    }

    /// Asks the owner of the connection to close it.
    pub(crate) fn request_close(&self) {
        self.closing.send_replace(true);
    }

    /// Waits until the connection is to be closed.
    pub(crate) async fn close_requested(&self) {
        // Fails only without a sender, and `self` is one.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Everything that the connection held is released: its process has exited.
    pub(crate) fn release(&self) {
        self.released.send_replace(true);
    }

    /// Waits until everything is released.
    pub(crate) async fn released(&self) {
        let _ = self.released.subscribe().wait_for(|released| *released).await;
    }
}

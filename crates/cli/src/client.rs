//! The one client of the HTTP API, with two transports.
//!
//! In: requests. Out: answers, or a failure in words. `remote` goes over the network; `in_process` opens the store of this folder
//! and asks the same routes inside this process. `transport` decides between them; no command knows which it was.

mod document;
mod events;
mod in_process;
mod remote;
mod request;
mod transport;

pub(crate) use document::{fetch, redact_url};
pub(crate) use events::{Event, EventStream, StreamResponse};
pub(crate) use in_process::InProcess;
pub(crate) use remote::Remote;
pub(crate) use request::{ApiResponse, Request};
pub(crate) use transport::{NO_SERVER, Transport, connect};

use crate::failure::Failure;

/// Brings requests to a hub.
pub(crate) enum Client {
    /// To a server.
    Remote(Remote),
    /// To the hub in this process.
    InProcess(Box<InProcess>),
}

impl Client {
    /// Sends one request and waits for all of its answer, whatever that says.
    ///
    /// # Errors
    /// When nobody answered.
    pub(crate) async fn send(&self, request: Request) -> Result<ApiResponse, Failure> {
        match self {
            Self::Remote(remote) => remote.send(request).await,
            Self::InProcess(hub) => hub.send(request).await,
        }
    }

    /// Sends one request and takes its answer only if it is a good one.
    ///
    /// # Errors
    /// When nobody answered, or with a problem.
    pub(crate) async fn send_checked(&self, request: Request) -> Result<ApiResponse, Failure> {
        self.send(request).await?.error_for_status()
    }

    /// Sends one request that asks for a stream of events, and waits for its beginning.
    ///
    /// # Errors
    /// When nobody answered.
    pub(crate) async fn stream(&self, request: Request) -> Result<StreamResponse, Failure> {
        let request = request.header("accept", Some("text/event-stream"));
        match self {
            Self::Remote(remote) => remote.stream(request).await,
            Self::InProcess(hub) => hub.stream(request).await,
        }
    }

    /// The server that is asked; none where this process does it itself.
    pub(crate) fn server_url(&self) -> Option<&str> {
        match self {
            Self::Remote(remote) => Some(remote.url()),
            Self::InProcess(_) => None,
        }
    }

    /// Lets everything come to its end that was begun in this process.
    pub(crate) async fn close(self, interrupted: bool) {
        if let Self::InProcess(hub) = self {
            hub.close(interrupted).await;
        }
    }
}

//! The HTTP API client of all commands, with two transports.
//!
//! In: requests. Out: responses, or a `Failure`. `remote` goes over the network; `in_process` opens the store of this folder
//! and calls the same routes inside this process. `transport` chooses between them; commands do not know which one it is.

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
pub(crate) use transport::{NO_SERVER, Occupant, Transport, connect, probe};

use crate::failure::Failure;

/// Sends requests to a hub.
pub(crate) enum Client {
    /// Over HTTP to a server.
    Remote(Remote),
    /// To a hub opened in this process.
    InProcess(Box<InProcess>),
}

impl Client {
    /// Sends a request and reads the whole response, whatever its status.
    ///
    /// # Errors
    /// When there is no response.
    pub(crate) async fn send(&self, request: Request) -> Result<ApiResponse, Failure> {
        match self {
            Self::Remote(remote) => remote.send(request).await,
            Self::InProcess(hub) => hub.send(request).await,
        }
    }

    /// Sends a request and turns an error status into a failure.
    ///
    /// # Errors
    /// When there is no response, or its status is an error.
    pub(crate) async fn send_checked(&self, request: Request) -> Result<ApiResponse, Failure> {
        self.send(request).await?.error_for_status()
    }

    /// Sends a request for an event stream and waits for the start of the response.
    ///
    /// # Errors
    /// When there is no response.
    pub(crate) async fn stream(&self, request: Request) -> Result<StreamResponse, Failure> {
        let request = request.header("accept", Some("text/event-stream"));
        match self {
            Self::Remote(remote) => remote.stream(request).await,
            Self::InProcess(hub) => hub.stream(request).await,
        }
    }

    /// The URL of the server; `None` for the in-process transport.
    pub(crate) fn server_url(&self) -> Option<&str> {
        match self {
            Self::Remote(remote) => Some(remote.url()),
            Self::InProcess(_) => None,
        }
    }

    /// Shuts down the in-process hub, if there is one; running calls drain first.
    pub(crate) async fn close(self, interrupted: bool) {
        if let Self::InProcess(hub) = self {
            hub.close(interrupted).await;
        }
    }
}

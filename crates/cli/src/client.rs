//! The one client of the HTTP API, with two ways to bring a request there.
//!
//! In: requests. Out: answers, or a failure in words. `remote` goes over the network; `here` opens the store of this folder
//! and asks the same routes inside this process. `way` decides between them; no command knows which it was.

mod document;
mod events;
mod here;
mod remote;
mod request;
mod way;

pub(crate) use document::{fetch, without_secrets};
pub(crate) use events::{Event, Events, Streamed};
pub(crate) use here::Here;
pub(crate) use remote::Remote;
pub(crate) use request::{Answer, Request};
pub(crate) use way::{NO_SERVER, Way, find};

use crate::failure::Failure;

/// Brings requests to a hub.
pub(crate) enum Client {
    /// To a server.
    Remote(Remote),
    /// To the hub in this process.
    Here(Box<Here>),
}

impl Client {
    /// Sends one request and waits for all of its answer, whatever that says.
    ///
    /// # Errors
    /// When nobody answered.
    pub(crate) async fn send(&self, request: Request) -> Result<Answer, Failure> {
        match self {
            Self::Remote(remote) => remote.send(request).await,
            Self::Here(here) => here.send(request).await,
        }
    }

    /// Sends one request and takes its answer only if it is a good one.
    ///
    /// # Errors
    /// When nobody answered, or with a problem.
    pub(crate) async fn ask(&self, request: Request) -> Result<Answer, Failure> {
        self.send(request).await?.good()
    }

    /// Sends one request that asks for a stream of events, and waits for its beginning.
    ///
    /// # Errors
    /// When nobody answered.
    pub(crate) async fn stream(&self, request: Request) -> Result<Streamed, Failure> {
        let request = request.header("accept", Some("text/event-stream"));
        match self {
            Self::Remote(remote) => remote.stream(request).await,
            Self::Here(here) => here.stream(request).await,
        }
    }

    /// The server that is asked; none where this process does it itself.
    pub(crate) fn server(&self) -> Option<&str> {
        match self {
            Self::Remote(remote) => Some(remote.url()),
            Self::Here(_) => None,
        }
    }

    /// Lets everything come to its end that was begun in this process.
    pub(crate) async fn close(self, interrupted: bool) {
        if let Self::Here(here) = self {
            here.close(interrupted).await;
        }
    }
}

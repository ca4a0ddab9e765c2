//! The door: listens, and brings requests to the routes.

use std::{future::Future, io, net::SocketAddr};

use tokio::net::TcpListener;

use crate::{api, app::App, route};

/// Why a server cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be had.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
    },
}

/// A server that has its address and serves when it is told to.
pub struct Bound {
    app: App,
    listener: TcpListener,
    address: SocketAddr,
}

pub(crate) async fn bind(app: App) -> Result<Bound, ServeError> {
    let address = format!("{}:{}", app.settings().host, app.settings().port);
    let taken = |source| ServeError::Listen { address: address.clone(), source };
    let listener = TcpListener::bind(&address).await.map_err(taken)?;
    let address = listener.local_addr().map_err(taken)?;
    Ok(Bound { app, listener, address })
}

impl Bound {
    /// The address it has.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is ready, then lets what runs come to its end.
    ///
    /// # Errors
    /// When the listener breaks.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), ServeError> {
        let router = route::router(api::routes(), &self.app);
        let broke = |source| ServeError::Listen { address: self.address.to_string(), source };
        axum::serve(self.listener, router).with_graceful_shutdown(stop).await.map_err(broke)
    }
}

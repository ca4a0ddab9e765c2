//! The server of the binary: `serve`, `demo`, and the hub of this folder for commands that need no server.
//!
//! In: the config. Out: a hub, its routes, and a server that runs until it is told to stop.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use toolhub::{
    backend::{Backend, Memory},
    server::{Server, Settings},
    sqlite::OpenError,
};

use crate::{
    client::Opened,
    config::{self, StoreTrouble},
    demo as tour,
    exit::Exit,
    failure::Failure,
    local::Local,
    session::Session,
};

/// Serve the tools of the config over HTTP.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The address to listen on; one that others can reach needs keys
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) host: Option<String>,
    /// The port; 0 lets the system choose [default: 8665]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Read the config again whenever its file changes
    #[arg(long)]
    pub(crate) watch: bool,
}

/// Serve a few tools to try out.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The port; 0 lets the system choose
    #[arg(long, value_name = "PORT", default_value_t = 8665)]
    pub(crate) port: u16,
    /// Walk through what toolhub does, without a server
    #[arg(long)]
    pub(crate) tour: bool,
    /// Work on this file until killed: what the tour does to itself once.
    #[arg(long, hide = true)]
    pub(crate) work_on: Option<PathBuf>,
}

/// Serves until it is told to stop.
pub(crate) async fn serve(session: &Session, serve: Serve) -> Result<Exit, Failure> {
    let _ = (session, serve.host, serve.port, serve.watch);
    Err(Failure::unexpected("`serve` is not wired yet"))
}

/// Serves the demo, or walks through the tour.
pub(crate) async fn demo(_: &Session, demo: Demo) -> Result<Exit, Failure> {
    let _ = (demo.port, demo.tour);
    tour::run(demo.work_on).await.map_err(|error| Failure::unexpected(error.to_string()))
}

/// Opens the hub of this folder, for commands that find no server.
///
/// # Errors
/// When the store is in use or cannot be opened, or the tools cannot be made.
pub(crate) async fn open(local: &Local) -> Result<Opened, Failure> {
    let config = &local.loaded.config;
    let opened = config.store.open().map_err(|trouble| closed(&trouble, local))?;
    let store: Arc<dyn Backend> = match &opened {
        config::Opened::Memory => Arc::new(Memory::default()),
        config::Opened::Sqlite(store) => store.clone(),
    };
    let hub = config.builder().shared_store(store.clone()).build().await;
    let hub = hub.map_err(|error| Failure::new("config_invalid", error.to_string()).help("toolhub config check"))?;
    let router = Server::new(hub.clone(), store, Settings::default()).router();
    Ok(Opened { router, hub })
}

/// Why the store stays closed, and who to ask instead.
fn closed(trouble: &StoreTrouble, local: &Local) -> Failure {
    match trouble {
        StoreTrouble::Open(OpenError::InUse { .. }) => Failure::new("store_in_use", trouble.to_string())
            .help("ask the server that has it open, for instance:")
            .help(format!("--server {}", local.url())),
        _ => Failure::new("store_unavailable", trouble.to_string()).help("toolhub doctor"),
    }
}

//! The server of the binary: `serve`, `demo`, and the hub of this folder for commands that need no server.
//!
//! In: the config. Out: a hub, its routes, and a server that runs until it is told to stop. `daemon` is the hub with all that
//! belongs to it; `logs` says on stderr what happens; `signals` and `watch` are how a person reaches a running server.

mod agents;
mod api_tools;
mod banner;
mod daemon;
mod logs;
mod signals;
mod upstream;
mod watch;

use std::{path::PathBuf, sync::Arc};

use axum::Router;
use clap::Args;
use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolhub::{
    BoxFuture, ToolHub,
    agent::AgentService,
    ids::{Tenant, ThreadId},
    server::ServeError,
    tasks::supervise,
};

use crate::{
    config::LoadOptions, demo as tour, exit::Exit, failure::Failure, global::GlobalFlags, local_hub::LocalHub,
    output::Printer, temp_folder::TempFolder,
};
use daemon::Daemon;
pub(crate) use signals::ShutdownSignals;
use upstream::Upstream;

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
pub(crate) async fn serve(global: &GlobalFlags, show: &Printer, serve: Serve) -> Result<Exit, Failure> {
    let mut asked = global.load_options()?;
    (asked.host, asked.port) = (serve.host, serve.port);
    let local = LocalHub::load(asked)?;
    logs::init(&local.loaded.config.telemetry);
    let daemon = Arc::new(Daemon::open(&local, local.config_file()).await?);
    run(&daemon, serve.watch, |url| banner::print_serve(show, url, &daemon)).await
}

/// Serves the demo, or walks through the tour.
pub(crate) async fn demo(global: &GlobalFlags, show: &Printer, demo: Demo) -> Result<Exit, Failure> {
    if demo.tour || demo.work_on.is_some() {
        return tour::run(demo.work_on).await.map_err(|error| Failure::unexpected(error.to_string()));
    }
    let folder = TempFolder::new().map_err(|error| Failure::unexpected(format!("no temporary folder: {error}")))?;
    let upstream = Upstream::start().await.map_err(|error| Failure::unexpected(format!("no free port: {error}")))?;
    let service = format!("http://{}", upstream.address);
    let program = std::env::current_exe().unwrap_or_else(|_| "toolhub".into());
    let file = crate::config::write_demo_config(folder.path(), &service, &program)
        .map_err(|error| Failure::unexpected(format!("the demo's config cannot be written: {error}")))?;
    // Neither the variables nor the files of whoever tries it out are meant for a demo.
    let folder_path = folder.path().to_owned();
    let asked =
        LoadOptions { config: Some(file), port: Some(demo.port), folder: folder_path, ..LoadOptions::default() };
    let local = LocalHub::load(asked)?;
    logs::init(&local.loaded.config.telemetry);
    let daemon = Arc::new(Daemon::open(&local, None).await?);
    let thread = ThreadId::new("demo").ok();
    daemon
        .hub
        .create_thread(&Tenant::default(), thread)
        .await
        .map_err(|error| Failure::unexpected(error.to_string()))?;
    let greet = |url: &str| banner::print_demo(show, url, &target_flags(global, url), &service, &daemon);
    let ended = run(&daemon, false, greet).await;
    drop((daemon, folder, upstream));
    ended
}

/// What must be typed behind a command so that it reaches the demo at this address: nothing where a command would look there
/// by itself.
fn target_flags(global: &GlobalFlags, url: &str) -> String {
    let by_itself = |local: LocalHub| local.config_file().is_none() && local.url() == url;
    let found = global.server.is_none() && LocalHub::find(global).is_ok_and(by_itself);
    if found { String::new() } else { format!(" --server {url}") }
}

/// A hub on the store of this folder, and the routes to it.
pub(crate) struct InProcessHub {
    /// The routes, served as to whoever sits at this machine.
    pub(crate) router: Router,
    /// The hub behind them.
    pub(crate) hub: ToolHub,
    /// The agents on it.
    pub(crate) agents: AgentService,
}

/// Opens the hub of this folder, for commands that find no server.
///
/// # Errors
/// When the store is in use or cannot be opened.
pub(crate) async fn open_in_process(local: &LocalHub) -> Result<InProcessHub, Failure> {
    let daemon = Arc::new(Daemon::open(local, local.config_file()).await?);
    Ok(InProcessHub { router: daemon.clone().local_router(), hub: daemon.hub.clone(), agents: daemon.agents.clone() })
}

/// Listens, greets and serves until a signal comes.
async fn run(daemon: &Arc<Daemon>, watch: bool, greet: impl FnOnce(&str)) -> Result<Exit, Failure> {
    let bound = daemon.clone().server().bind().await.map_err(serve_failure)?;
    let mut first = Some(signals::reload_on_hangup(daemon.clone()).boxed());
    let reloads = spawn_supervised("reload on SIGHUP", daemon, move |daemon| {
        first.take().unwrap_or_else(|| signals::reload_on_hangup(daemon).boxed())
    });
    let (twice, stop) = (signals::second_stop_requested(), signals::stop_requested());
    greet(&daemon.url(bound.address()));
    let watching =
        watch.then(|| spawn_supervised("reload on change", daemon, |daemon| watch::reload_on_change(daemon).boxed()));
    let served = tokio::select! {
        // The counter is polled first: otherwise the second signal could come before the first was counted.
        biased;
        () = twice => Ok(Exit::Interrupted),
        served = bound.serve(stop) => served.map(|()| Exit::Success),
    };
    reloads.abort();
    watching.iter().for_each(JoinHandle::abort);
    served.map_err(serve_failure)
}

/// Starts a task of the server, which is started again if it panics. It runs until it is aborted.
fn spawn_supervised(
    name: &'static str,
    daemon: &Arc<Daemon>,
    mut make: impl FnMut(Arc<Daemon>) -> BoxFuture<'static, ()> + Send + 'static,
) -> JoinHandle<()> {
    let daemon = daemon.clone();
    tokio::spawn(supervise(name, CancellationToken::new(), Box::new(move || make(daemon.clone()))))
}

fn serve_failure(error: ServeError) -> Failure {
    let failure = Failure::new(if error.is_config() { "config_invalid" } else { "unreachable" }, error.to_string());
    match error {
        ServeError::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
            failure.help("another program listens there; choose another port, for instance with `--port 0`")
        }
        _ => failure,
    }
}

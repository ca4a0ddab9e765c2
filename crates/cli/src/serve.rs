//! The server commands `serve` and `demo`, a server beside another task, and the in-process hub for commands that find no server.
//!
//! In: the config. Out: a hub, its router, and a server that runs until a stop signal. `daemon` is the hub with everything around
//! it; `logs` writes log lines to stderr; `signals` and `watch` are how an operator stops or reloads a running server.

mod agents;
mod api_definitions;
mod api_requests;
mod api_servers;
mod api_tools;
mod background;
mod backup_age;
mod banner;
mod browser;
mod daemon;
mod logs;
mod open_files;
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
    ToolHub,
    agent::AgentService,
    ids::{Tenant, ThreadId},
    server::ServeError,
    tasks,
};

use crate::{
    config::LoadOptions, demo as tour, exit::Exit, failure::Failure, global::GlobalFlags, local_hub::LocalHub,
    output::Printer, temp_folder::TempFolder,
};
pub(crate) use background::{BackgroundServer, StartError};
pub(crate) use daemon::wait_for_first_connections;
use daemon::{Daemon, Purpose};
pub(crate) use logs::init as init_logs;
pub(crate) use signals::ShutdownSignals;
use upstream::Upstream;

/// Serve the tools of the config over HTTP.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Address to listen on; one that other machines can reach requires API keys
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) host: Option<String>,
    /// Port; 0 lets the system choose [default: 8665]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Reload the config whenever its file changes
    #[arg(long)]
    pub(crate) watch: bool,
    /// Serve no dashboard
    #[arg(long, conflicts_with = "open")]
    pub(crate) no_ui: bool,
    /// Open the dashboard in the browser
    #[arg(long)]
    pub(crate) open: bool,
}

/// Serve a few sample tools.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Port; 0 lets the system choose
    #[arg(long, value_name = "PORT", default_value_t = 8665)]
    pub(crate) port: u16,
    /// Show a guided tour of the features, without a server
    #[arg(long)]
    pub(crate) tour: bool,
    /// Work on this store until killed; the tour starts itself with it once.
    #[arg(long, hide = true)]
    pub(crate) work_on: Option<PathBuf>,
}

/// Serves until a stop signal.
pub(crate) async fn serve(global: &GlobalFlags, printer: &Printer, serve: Serve) -> Result<Exit, Failure> {
    let mut options = global.load_options()?;
    (options.host, options.port, options.no_ui) = (serve.host, serve.port, serve.no_ui);
    let local = LocalHub::load(options)?;
    logs::init(&local.loaded.config.telemetry);
    let daemon = Arc::new(Daemon::open(&local, local.config_file(), Purpose::Serve).await?);
    let greet = |url: &str| {
        banner::print_serve(printer, url, &daemon);
        if serve.open {
            browser::open_dashboard(printer, daemon.dashboard_url(url));
        }
    };
    run(&daemon, serve.watch, greet).await
}

/// How long the banner of the demo waits for its MCP server.
const MCP_SERVER_WAIT: std::time::Duration = std::time::Duration::from_secs(3);

/// Serves the demo, or runs the tour.
pub(crate) async fn demo(global: &GlobalFlags, printer: &Printer, demo: Demo) -> Result<Exit, Failure> {
    if demo.tour || demo.work_on.is_some() {
        return tour::run(demo.work_on).await.map_err(|error| Failure::unexpected(error.to_string()));
    }
    let folder =
        TempFolder::new().map_err(|error| Failure::unexpected(format!("cannot create a temporary folder: {error}")))?;
    let upstream = Upstream::start()
        .await
        .map_err(|error| Failure::unexpected(format!("cannot start the demo's HTTP service: {error}")))?;
    let service = format!("http://{}", upstream.address);
    let program = std::env::current_exe().unwrap_or_else(|_| "toolhub".into());
    let file = crate::config::write_demo_config(folder.path(), &service, &program)
        .map_err(|error| Failure::unexpected(format!("cannot write the demo's config: {error}")))?;
    // The demo ignores the variables and config files of the user.
    let folder_path = folder.path().to_owned();
    let options =
        LoadOptions { config: Some(file), port: Some(demo.port), folder: folder_path, ..LoadOptions::default() };
    let local = LocalHub::load(options)?;
    logs::init(&local.loaded.config.telemetry);
    let daemon = Arc::new(Daemon::open(&local, None, Purpose::Serve).await?);
    let thread = ThreadId::new("demo").ok();
    daemon
        .hub
        .create_thread(&Tenant::default(), thread)
        .await
        .map_err(|error| Failure::unexpected(error.to_string()))?;
    // So that the banner names the tool of the MCP server.
    let _ = tokio::time::timeout(MCP_SERVER_WAIT, wait_for_first_connections(&daemon.hub)).await;
    let greet = |url: &str| banner::print_demo(printer, url, &target_flags(global, url), &service, &daemon);
    let result = run(&daemon, false, greet).await;
    drop((daemon, folder, upstream));
    result
}

/// The flags that make a command reach the demo at this URL: none where a command would find it without them.
fn target_flags(global: &GlobalFlags, url: &str) -> String {
    let finds_demo = |local: LocalHub| local.config_file().is_none() && local.url() == url;
    let needs_no_flags = global.server.is_none() && LocalHub::find(global).is_ok_and(finds_demo);
    if needs_no_flags { String::new() } else { format!(" --server {url}") }
}

/// A hub on the store of this folder, and its router.
pub(crate) struct InProcessHub {
    /// The router, which treats every request as local.
    pub(crate) router: Router,
    /// The hub behind them.
    pub(crate) hub: ToolHub,
    /// The agents on it.
    pub(crate) agents: AgentService,
    daemon: Arc<Daemon>,
}

impl InProcessHub {
    /// Connects to the MCP servers, which a command does when it needs their tools.
    pub(crate) async fn connect_mcp_servers(&self) {
        self.daemon.connect_mcp_servers().await;
    }
}

/// Opens the hub of this folder, for commands that find no server.
///
/// # Errors
/// When the store is in use or cannot be opened.
pub(crate) async fn open_in_process(local: &LocalHub) -> Result<InProcessHub, Failure> {
    let daemon = Arc::new(Daemon::open(local, local.config_file(), Purpose::Command).await?);
    let (router, hub, agents) = (daemon.clone().local_router(), daemon.hub.clone(), daemon.agents.clone());
    Ok(InProcessHub { router, hub, agents, daemon })
}

/// Binds the listener, prints the banner and serves until a signal.
async fn run(daemon: &Arc<Daemon>, watch: bool, print_banner: impl FnOnce(&str)) -> Result<Exit, Failure> {
    let bound = daemon.clone().server().bind().await.map_err(serve_failure)?;
    let (reloading, mut first) = (daemon.clone(), Some(signals::reload_on_hangup(daemon.clone()).boxed()));
    let reloads = tasks::spawn("reload on SIGHUP", CancellationToken::new(), move |_| {
        first.take().unwrap_or_else(|| signals::reload_on_hangup(reloading.clone()).boxed())
    });
    let (second_stop, stop) = (signals::second_stop_requested(), signals::stop_requested());
    let url = daemon.url(bound.address());
    daemon.link_alerts(&url);
    print_banner(&url);
    let watched = daemon.clone();
    let watching = watch.then(|| {
        tasks::spawn("reload on change", CancellationToken::new(), move |_| {
            watch::reload_on_change(watched.clone()).boxed()
        })
    });
    let served = tokio::select! {
        // The second-signal future is polled first: otherwise it could see the second signal before it counted the first.
        biased;
        () = second_stop => Ok(Exit::Interrupted),
        served = bound.serve(stop) => served.map(|()| Exit::Success),
    };
    reloads.abort();
    watching.iter().for_each(JoinHandle::abort);
    served.map_err(serve_failure)
}

fn serve_failure(error: ServeError) -> Failure {
    let failure = Failure::new(if error.is_config() { "config_invalid" } else { "unreachable" }, error.to_string());
    match error {
        ServeError::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
            failure.help("another program listens there; choose another port, e.g. with `--port 0`")
        }
        _ => failure,
    }
}

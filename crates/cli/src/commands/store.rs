//! `store copy`: copies all records of a store into another one. No server may use either, so this command opens both itself.

use std::path::PathBuf;

use serde_json::json;
use toolhub::{
    announced_node_timeout,
    backend::Backend,
    clock::{Clock, SystemClock, Timestamp},
    copy::{self, CopyError},
    index_terms,
};

use crate::{
    config::{Backend as BackendConfig, LoadOptions, Store, StoreHandle},
    exit::Exit,
    failure::Failure,
    local_hub::LocalHub,
    session::Session,
};

/// Commands for the store as a whole.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum StoreCommand {
    /// Copy all records into the store of another config
    Copy(CopyArgs),
}

/// Copy all records into the store of another config.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The source is the store of this folder's config (--config), the target that of --to; both as in their [store]. The source is not changed.
Stop all servers of both stores first: a store that is in use is refused. One that was killed counts as running for the longest
`store.node_timeout` of the servers.
The target must be empty. If the command fails, discard the target and start again.
Each record keeps its version and its times; afterwards both stores are compared. Not copied: what has expired, what running servers hold
(their leases and shared permits, events on their way between them), and states in a store of their own ([state]).
Sealed secrets stay sealed with the key of the source. The target can read them with the same key: from Redis to Redis the same
`store.redis.seal_secret`, from SQLite to SQLite a copy of the .db.key file. Otherwise calls that wait end as interrupted, conversations show
[redacted], and tools with secrets that were created over the API must be created again.
From one Redis to another number of buckets: the same config with another `store.key_prefix` and `store.redis.buckets`.

  toolhub store copy --to redis.toml                         from this folder's store to that of redis.toml
  toolhub store copy --config redis.toml --to toolhub.toml   and back

Exit code 0: both stores are the same; 4: one of them is in use, or cannot be opened.")]
pub(crate) struct CopyArgs {
    /// The config whose [store] is the target
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
}

pub(crate) async fn run(session: &Session, command: StoreCommand) -> Result<Exit, Failure> {
    let StoreCommand::Copy(args) = command;
    if session.global.server.is_some() {
        return Err(Failure::usage("a store cannot be copied through a server")
            .help("stop the server, then run this on its machine, without --server and TOOLHUB_URL"));
    }
    let local = LocalHub::find(&session.global)?;
    local.require_config()?;
    let target_options = LoadOptions { config: Some(args.to.clone()), ..session.global.load_options()? };
    let target = LocalHub::load(target_options)?;
    let target_config = target.loaded.config.clone();
    let (source, target) = (open(&local.loaded.config.store)?, open(&target_config.store)?);
    let (source, target) = (source.backend(), target.backend());
    for (name, store, config) in
        [("source", &source, &local.loaded.config.store), ("target", &target, &target_config.store)]
    {
        check_unused(name, &**store, config).await?;
    }
    session.printer.note(&format!("copying from {} to {}", source.name(), target.name()));
    // Rows expire by the clock of their store, which may not be that of this machine.
    let now = now_of(&*source);
    let failed = |error: CopyError| {
        let failure = Failure::new("store_unavailable", error.to_string());
        match error {
            CopyError::NotEmpty(_) => {
                failure.help("name a new file or another `store.key_prefix` in the config of --to")
            }
            _ => failure.help("stop all servers of both stores, discard the target, and copy again"),
        }
    };
    let counts = copy::copy(&*source, &*target, index_terms, now).await.map_err(failed)?;
    copy::compare(&*source, &*target, now).await.map_err(failed)?;
    if session.printer.json {
        let tables = counts.iter().map(|(table, rows)| (table.as_str().to_owned(), json!(rows)));
        let document = json!({"rows": counts.values().sum::<u64>(), "tables": serde_json::Map::from_iter(tables)});
        session.printer.print_json(&document.to_string());
        return Ok(Exit::Success);
    }
    for (table, rows) in counts.iter().filter(|(_, rows)| **rows > 0) {
        session.printer.print(&format!("{table}\t{rows}"));
    }
    session.printer.note(&format!("{} rows copied; both stores are the same", counts.values().sum::<u64>()));
    Ok(Exit::Success)
}

/// Refuses a store that a server uses. One in a file is locked by its server, and could not be opened.
async fn check_unused(name: &str, store: &dyn Backend, config: &Store) -> Result<(), Failure> {
    let living = copy::living_nodes(store, announced_node_timeout, config.node_timeout, now_of(store)).await;
    let living = living.map_err(|error| Failure::new("store_unavailable", error.to_string()))?;
    if living.ids.is_empty() {
        return Ok(());
    }
    let message = format!("the {name} store is in use by {} servers: {}", living.ids.len(), living.ids.join(", "));
    let help = format!(
        "stop all servers of both stores (SIGTERM), then run this again; one that was killed counts for {:?}",
        living.timeout
    );
    Err(Failure::new("store_unavailable", message).help(help))
}

/// The time by the clock of the store; by that of this machine if it has none.
fn now_of(store: &dyn Backend) -> Timestamp {
    store.clock().map_or_else(|| SystemClock.now(), |clock| clock.now())
}

fn open(store: &Store) -> Result<StoreHandle, Failure> {
    if matches!(store.backend, BackendConfig::Memory { .. }) {
        return Err(Failure::new("config_invalid", "a store in memory has no records to copy, and keeps none")
            .help("set backend = \"sqlite\" or \"redis\" in [store]"));
    }
    store.open().map_err(|error| {
        Failure::new("store_unavailable", error.to_string()).help("stop all servers of both stores first")
    })
}

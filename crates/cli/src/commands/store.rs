//! `store copy`: copies all records of a store into another one. No server may use either, so this command opens both itself.

use std::path::PathBuf;

use serde_json::json;
use toolhub::{
    backend::Backend as _,
    clock::{Clock, SystemClock},
    copy::{self, CopyError},
    index_terms,
};

use crate::{
    config::{Backend, LoadOptions, Store, StoreHandle},
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
Stop all servers of both stores first. The target must be empty. Each record keeps its version; afterwards both stores are compared.
Secrets of calls that wait for approval stay sealed with the key of the source: such a call ends when it is to go on.
From one Redis to another number of buckets: the same config with another `store.key_prefix` and `store.redis.buckets`.")]
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
    let (source, target) = (open(&local.loaded.config.store)?, open(&target.loaded.config.store)?);
    let (source, target) = (source.backend(), target.backend());
    session.printer.note(&format!("copying from {} to {}", source.name(), target.name()));
    let now = SystemClock.now();
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

fn open(store: &Store) -> Result<StoreHandle, Failure> {
    if matches!(store.backend, Backend::Memory { .. }) {
        return Err(Failure::new("config_invalid", "a store in memory has no records to copy, and keeps none")
            .help("set backend = \"sqlite\" or \"redis\" in [store]"));
    }
    store.open().map_err(|error| {
        Failure::new("store_unavailable", error.to_string()).help("stop all servers of both stores first")
    })
}

//! The hub as a gateway: as `toolhub serve` runs it, with its calls recorded in SQLite, or without records of those that only read.

use std::{env, path::PathBuf, sync::Arc};

use toolhub::{
    ReadOnlyCalls, Sqlite, ToolHub,
    backend::Backend,
    mcp::McpServer,
    server::{Server, Settings},
};

use crate::server::VARIABLE;

pub(super) async fn serve(upstream: Option<String>, recorded: ReadOnlyCalls) {
    let folder = Folder::new();
    let store: Arc<dyn Backend> = Arc::new(Sqlite::open(folder.0.join("bench.db"), Default::default()).unwrap());
    let source = match upstream {
        Some(url) => McpServer::http("bench", url).allow_host("127.0.0.1"),
        None => McpServer::stdio("bench", env::current_exe().unwrap()).env(VARIABLE, "stdio"),
    };
    let hub = ToolHub::builder().store(store.clone()).read_only_calls(recorded);
    let hub = hub.source(source.trust().source().unwrap()).build().await.unwrap();
    let mut settings = Settings::default();
    settings.port = 0;
    let bound = Server::new(hub, store, settings).bind().await.unwrap();
    println!("{}", bound.address().port());
    bound.serve(std::future::pending()).await.unwrap();
}

/// A folder for the database, which outlives this process: it is killed.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = env::temp_dir().join(format!("toolhub-bench-mcp-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

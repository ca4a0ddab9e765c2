//! The call route of a toolhub server, with one tool.

use std::{path::PathBuf, sync::Arc};

use serde::Deserialize;
use toolhub::{
    Sqlite,
    backend::{Backend, Memory},
    prelude::*,
    server::{Auth, KeySetting, NewKey, Scope, Server, Settings},
};

use crate::load::{self, Target};

/// Where call records are stored.
pub(crate) enum Store {
    Memory,
    Sqlite(PathBuf),
}

/// Adds two numbers.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Add {
    a: i64,
    b: i64,
}

pub(crate) async fn add(numbers: Add) -> Result<serde_json::Value, ToolError> {
    Ok(serde_json::json!({"sum": numbers.a + numbers.b}))
}

pub(crate) async fn start(name: &'static str, store: Store, with_key: bool) -> Target {
    let min_rate_ratio = Some(if matches!(store, Store::Sqlite(_)) { 0.6 } else { 0.7 });
    let store: Arc<dyn Backend> = match store {
        Store::Memory => Arc::new(Memory::new()),
        Store::Sqlite(path) => Arc::new(Sqlite::open(path, Default::default()).unwrap()),
    };
    let hub = ToolHub::builder().store(store.clone()).tool(tool("add", add).read_only()).build().await.unwrap();
    let mut settings = Settings::default();
    settings.port = 0;
    let key = with_key.then(|| NewKey::make().unwrap());
    if let Some(key) = &key {
        settings.auth = Auth::Keys(vec![KeySetting {
            name: "bench".into(),
            tenant: "main".into(),
            hash: key.hash.clone(),
            scopes: vec![Scope::ToolsCall],
            expires: None,
        }]);
    }
    let bound = Server::new(hub, store, settings).bind().await.unwrap();
    let address = bound.address();
    tokio::spawn(bound.serve(std::future::pending()));
    let request = load::request(key.as_ref().map(|key| key.key.as_str()));
    let body_len = load::probe(address, &request).await;
    Target { name, address, request, body_len, min_rate_ratio, max_p99_ratio: Some(2.0) }
}

//! A request whose handler panics is answered, in both eras of the protocol.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use serde_json::json;
use toolhub_core::{
    BoxFuture, ToolHub,
    backend::{Backend, Batch, Memory, Page, Row, RowKey, Scan, StoreError, Table, Watcher},
    clock::Timestamp,
};
use toolhub_server::Server;

use crate::{support_api::settings, support_mcp::McpClient};

/// A store whose reads panic while a flag is set.
#[derive(Default)]
struct PanickingStore {
    memory: Memory,
    panics: AtomicBool,
}

impl PanickingStore {
    fn check(&self) {
        assert!(!self.panics.load(SeqCst), "the store panics as it was told to");
    }
}

impl Backend for PanickingStore {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        self.check();
        self.memory.load(keys, now)
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        self.memory.commit(batch, now)
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.check();
        self.memory.scan(scan, now)
    }

    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.memory.sweep(most, now)
    }

    fn watch(&self, table: Table) -> Watcher {
        self.memory.watch(table)
    }
}

#[tokio::test]
async fn a_request_whose_handler_panics_gets_an_internal_error() {
    let store = Arc::new(PanickingStore::default());
    let hub = ToolHub::builder().shared_store(store.clone()).build().await.unwrap();
    let router = Server::new(hub, store.clone(), settings()).router();
    let artifact = json!({"uri": "toolhub://artifacts/art_01JZ0000000000000000000000"});
    for client in [McpClient::legacy(&router, "/mcp").await, McpClient::modern(&router, "/mcp")] {
        let before = client.error("resources/read", artifact.clone()).await;
        assert_ne!(before["code"], -32603, "{before}");
        store.panics.store(true, SeqCst);
        let error = client.error("resources/read", artifact.clone()).await;
        assert_eq!(error["code"], -32603, "{error}");
        store.panics.store(false, SeqCst);
        let after = client.error("resources/read", artifact.clone()).await;
        assert_eq!(after, before);
    }
}

//! A request whose handler panics is answered, in both eras of the protocol.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use serde_json::json;
use toolhub_core::{
    ToolHub,
    testing::{ObservedStore, StoreUse},
};
use toolhub_server::Server;

use crate::{support_api::settings, support_mcp::McpClient};

#[tokio::test]
async fn a_request_whose_handler_panics_gets_an_internal_error() {
    let panics = Arc::new(AtomicBool::new(false));
    let planted = panics.clone();
    let store = Arc::new(ObservedStore::new(move |used| {
        let is_read = matches!(used, StoreUse::Load(_) | StoreUse::Scan(_));
        assert!(!is_read || !planted.load(SeqCst), "planted panic of the store");
    }));
    let hub = ToolHub::builder().store(store.clone()).build().await.unwrap();
    let router = Server::new(hub, store, settings()).router();
    let artifact = json!({"uri": "toolhub://artifacts/art_01JZ0000000000000000000000"});
    for client in [McpClient::legacy(&router, "/mcp").await, McpClient::modern(&router, "/mcp")] {
        let before = client.error("resources/read", artifact.clone()).await;
        assert_ne!(before["code"], -32603, "{before}");
        panics.store(true, SeqCst);
        let error = client.error("resources/read", artifact.clone()).await;
        assert_eq!(error["code"], -32603, "{error}");
        panics.store(false, SeqCst);
        let after = client.error("resources/read", artifact.clone()).await;
        assert_eq!(after, before);
    }
}

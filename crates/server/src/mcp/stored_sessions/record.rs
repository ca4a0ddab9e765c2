//! A session as it is stored, with what its client has set.
#![allow(deprecated, reason = "log levels are deprecated, but clients still set them")]

use rmcp::model::LoggingLevel;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use smol_str::SmolStr;
use toolhub_core::{
    clock::Timestamp,
    ids::{Caller, ThreadId},
};

/// A session as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct McpSession {
    pub(crate) id: SmolStr,
    pub(crate) caller: Caller,
    pub(crate) thread: ThreadId,
    /// The parameters of `initialize`: protocol version, capabilities, client info.
    pub(crate) client: Value,
    pub(crate) created_at: Timestamp,
    #[serde(default)]
    pub(crate) settings: SessionSettings,
}

/// What a client has set in its session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SessionSettings {
    /// The resources that it subscribed to.
    pub(crate) subscriptions: Vec<String>,
    /// The least level of log lines that it wants.
    pub(crate) log_level: Option<LoggingLevel>,
}

impl SessionSettings {
    pub(crate) fn subscribe(&mut self, uri: &str) {
        self.unsubscribe(uri);
        self.subscriptions.push(uri.to_owned());
    }

    pub(crate) fn unsubscribe(&mut self, uri: &str) {
        self.subscriptions.retain(|it| it != uri);
    }
}

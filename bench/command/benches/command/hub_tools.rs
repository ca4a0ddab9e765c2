//! The same program as a tool of a hub: all doors, its records in memory, its limits.

use serde_json::json;
use toolhub::{
    ToolHub,
    command::{Command, Guard},
};

use crate::SED_ARGS;

pub(crate) async fn hub() -> ToolHub {
    let plain = || Command::new("sed").args(SED_ARGS);
    let guarded = || plain().guard(Guard::this_program().unwrap());
    ToolHub::builder()
        .tool(plain().tool("once"))
        .tool(guarded().tool("once_guarded"))
        .tool(plain().stateful_tool("lives"))
        .tool(guarded().stateful_tool("lives_guarded"))
        .build()
        .await
        .unwrap()
}

pub(crate) async fn call(hub: &ToolHub, tool: &str) {
    let outcome = hub.call(tool, json!({"text": "hello"})).thread("bench").await;
    assert!(outcome.is_success(), "{outcome:?}");
}

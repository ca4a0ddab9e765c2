//! The same program as a command tool of a hub, with records in memory.

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
        .tool(plain().tool("one_shot"))
        .tool(guarded().tool("one_shot_guarded"))
        .tool(plain().stateful_tool("long_running"))
        .tool(guarded().stateful_tool("long_running_guarded"))
        .build()
        .await
        .unwrap()
}

pub(crate) async fn call(hub: &ToolHub, tool: &str) {
    let outcome = hub.call(tool, json!({"text": "hello"})).thread("bench").await;
    assert!(outcome.is_success(), "{outcome:?}");
}

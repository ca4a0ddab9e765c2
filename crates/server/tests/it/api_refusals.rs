//! Calls whose tool never ran are answered with the status of their error.

use std::sync::Arc;

use serde_json::{Value, json};
use toolhub_core::{
    CallContext, JsonReply, ManagerType, StateManagerConfig, ToolError, ToolHub, backend::Memory, dynamic_stateful,
};
use toolhub_server::Server;

use crate::support_api::{send, settings};

#[tokio::test]
async fn a_call_whose_tool_never_ran_because_the_session_is_full_is_refused() {
    let config = StateManagerConfig {
        manager_type: Some(ManagerType::Session),
        max_states_per_session: 1,
        ..StateManagerConfig::default()
    };
    let keeps = |name: &str, state: &str| {
        dynamic_stateful(name, state, json!({"type": "object"}), |_: Value, _: CallContext| async move {
            Ok::<_, ToolError>(JsonReply::with_state(json!(1), json!({"a": 1})))
        })
    };
    let hub = ToolHub::builder()
        .state_manager(config)
        .tool(keeps("first", "a"))
        .tool(keeps("second", "b"))
        .build()
        .await
        .unwrap();
    let router = Server::new(hub, Arc::new(Memory::default()), settings()).router();
    let call = async |tool: &str| {
        let body = Some(json!({"threadId": "t1", "arguments": {}}).to_string());
        send(&router, "POST", &format!("/api/v1/tools/{tool}/calls"), body, &[]).await
    };
    call("first").await.expect_status(200);
    let refused = call("second").await.expect_problem(409, "state_limit");
    assert!(refused["callId"].is_string() && refused["model"].is_string(), "{refused}");
    call("first").await.expect_status(200);
}

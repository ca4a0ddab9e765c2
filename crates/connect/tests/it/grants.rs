//! Grants of command and REST tools: void once the program, its arguments or the request behind the tool changes.

use serde_json::json;
use toolhub_connect::{command::Command, rest::Rest};
use toolhub_core::{
    Answer, ApprovalOutcome, ErrorKind, ToolBuilder, ToolHub,
    ids::{Caller, Tenant},
    status::StatusSettings,
};

/// Grants the first tool, replaces it by each of the others, and expects which of them asks again.
async fn check(build: &dyn Fn() -> ToolBuilder, changes: Vec<(&str, ToolBuilder, bool)>) {
    // The programs fail and the requests are refused; that must not withhold the tool.
    let settings = StatusSettings { enabled: false, ..StatusSettings::default() };
    let hub = ToolHub::builder().tool(build().confirm()).status(settings).build().await.unwrap();
    let call = || hub.call("it", json!({})).no_wait();
    let id = call().await.error.unwrap().approval().expect("the call asks");
    let answer = Answer::new(ApprovalOutcome::ProceedAlwaysTool, Caller::new("boss").unwrap());
    hub.resolve_approval(&Tenant::default(), id, answer).await.unwrap();
    for (name, changed, asks) in changes {
        assert_ne!(call().await.error_kind(), Some(ErrorKind::ApprovalRequired), "granted before {name}");
        for (tool, asks) in [(changed, asks), (build(), false)] {
            hub.unregister("it").await;
            hub.register(tool.confirm()).unwrap();
            assert_eq!(call().await.error_kind() == Some(ErrorKind::ApprovalRequired), asks, "{name}");
        }
    }
}

#[tokio::test]
async fn a_grant_is_void_when_the_program_or_its_arguments_change() {
    let command = || Command::new("true").arg("--dry-run").env("TOKEN", "a");
    let changes = vec![
        ("the program", Command::new("false").arg("--dry-run").env("TOKEN", "a").tool("it"), true),
        ("an argument", Command::new("true").arg("--force").env("TOKEN", "a").tool("it"), true),
        ("one more argument", command().arg("--force").tool("it"), true),
        ("the folder", command().cwd("/").tool("it"), true),
        ("one more variable", command().env("FORCE", "1").tool("it"), true),
        ("a variable that is passed on", command().pass_env("FORCE").tool("it"), true),
        ("a new secret", command().env("TOKEN", "b").tool("it"), false),
    ];
    check(&|| command().tool("it"), changes).await;
    let changed = Command::new("true").arg("--force").stateful_tool("it");
    check(&|| Command::new("true").stateful_tool("it"), vec![("an argument", changed, true)]).await;
}

#[tokio::test]
async fn a_grant_is_void_when_the_request_changes() {
    let tool = |rest: Rest| rest.tool_with("it", json!({"type": "object"}));
    // The address guard refuses the address, so nothing is sent.
    let address = "http://127.0.0.1:1/a?dry=1";
    let changes = vec![
        ("the host", tool(Rest::post("http://127.0.0.2:1/a?dry=1")), true),
        ("the path", tool(Rest::post("http://127.0.0.1:1/b?dry=1")), true),
        ("a value in the query", tool(Rest::post("http://127.0.0.1:1/a?dry=0")), true),
        ("a header", tool(Rest::post(address).header("x-mode", "force")), true),
        ("the body", tool(Rest::post(address).json(json!({"force": true}))), true),
        ("nothing", tool(Rest::post(address)), false),
    ];
    check(&|| tool(Rest::post(address)), changes).await;
}

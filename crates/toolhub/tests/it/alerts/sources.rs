//! A server and its tools are one message.

use toolhub::{
    SourceConnection, SourceHandle,
    alerts::{AlertPhase, AlertTarget, Condition},
    prelude::*,
    testing::{TestSource, TestSourceControl, scripted},
};

use super::{MINUTE, Memory, SECOND, TestClock, receiver::Receiver};

/// A hub with a server that has 80 tools and is connected.
async fn hub(target: AlertTarget) -> (ToolHub, TestSourceControl, SourceHandle) {
    let (source, mut control) = TestSource::new("pg");
    let builder = ToolHub::builder().clock(TestClock::new()).store(Memory::new()).source(source);
    let hub = builder.alert(target).build().await.unwrap();
    let handle = control.handle().await;
    let tools = (0..80).map(|number| scripted(&format!("pg__tool{number}"), []).0);
    assert!(handle.replace_tools(tools.collect()).await.is_empty());
    connect(&hub, &control, &handle, true).await;
    tokio::time::sleep(MINUTE).await;
    (hub, control, handle)
}

async fn connect(hub: &ToolHub, control: &TestSourceControl, handle: &SourceHandle, is_connected: bool) {
    control.set_info(|info| {
        info.status.connection =
            if is_connected { SourceConnection::Connected } else { SourceConnection::Disconnected };
        info.status.last_error = Some("CANARY exited with 1".into());
        info.status.since = hub.now();
    });
    match is_connected {
        true => handle.connected().await,
        false => handle.disconnected("CANARY exited with 1"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_with_eighty_tools_that_dies_and_comes_back_is_two_messages() {
    for conditions in [
        vec![Condition::ToolStatus],
        vec![Condition::ToolWithheld],
        vec![Condition::ServerDown],
        vec![Condition::ToolStatus, Condition::ServerDown],
    ] {
        let receiver = Receiver::default();
        let target = AlertTarget::new("ops", receiver.clone()).on(conditions.clone());
        let (hub, control, handle) = hub(target).await;
        assert!(receiver.messages().is_empty(), "a start is no alert");
        connect(&hub, &control, &handle, false).await;
        tokio::time::sleep(10 * MINUTE).await;
        connect(&hub, &control, &handle, true).await;
        tokio::time::sleep(20 * MINUTE).await;
        let messages = receiver.messages();
        let phases: Vec<_> = messages.iter().map(|message| message.phase).collect();
        assert_eq!(phases, [AlertPhase::Firing, AlertPhase::Resolved], "{conditions:?}");
        let is_server = conditions.contains(&Condition::ServerDown);
        assert_eq!(messages[0].alerts.len(), if is_server { 1 } else { 80 }, "{conditions:?}");
        assert!(messages[0].summary().contains("MCP server `pg`"), "{}", messages[0].summary());
        assert!(!serde_json::to_string(&messages).unwrap().contains("CANARY"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_interruption_of_a_server_is_no_message() {
    let receiver = Receiver::default();
    let target = AlertTarget::new("ops", receiver.clone()).on([Condition::ServerDown, Condition::ToolStatus]);
    let (hub, control, handle) = hub(target).await;
    connect(&hub, &control, &handle, false).await;
    tokio::time::sleep(30 * SECOND).await;
    connect(&hub, &control, &handle, true).await;
    tokio::time::sleep(20 * MINUTE).await;
    assert_eq!(receiver.messages(), []);
}

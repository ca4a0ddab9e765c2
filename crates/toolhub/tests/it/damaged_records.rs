//! An unreadable stored record does not stop anything, and is logged.

use std::sync::Arc;

use toolhub::{
    StatusScope,
    backend::{Backend, Batch, Change, Durability, Expect, Memory, Partition, Table, Write},
    clock::Timestamp,
    ids::{Tenant, ThreadId},
    prelude::*,
    status::ToolStatus,
    testing::{AssertOutcome, TestClock, scripted},
};

use crate::log_capture;

/// A row that this version could not have written.
async fn write_raw_row(store: &dyn Backend, table: Table, id: &str, text: &str, schema: u32) {
    let partition = Partition::for_thread(Tenant::default(), ThreadId::new("t1").unwrap());
    let change = Change::Put { value: text.as_bytes().into(), schema, expires: None };
    let write = Write { table, id: id.into(), expect: Expect::Any, change, durability: Durability::KillSafe };
    store.commit(Batch::new(partition).with(write), Timestamp::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_damaged_record_stops_nobody_is_logged_and_can_be_replaced() {
    let lines = log_capture::start();
    let store: Arc<dyn Backend> = Arc::new(Memory::new());
    write_raw_row(&*store, Table::Statuses, "flaky", r#"{"epoch": "my secret"}"#, 1).await;
    write_raw_row(&*store, Table::Statuses, "later", "{}", 2).await;
    write_raw_row(&*store, Table::Evidence, "evidence", "{ my secret", 1).await;
    let names = ["flaky", "later", "base"].map(|name| scripted(name, []).0);
    let tools = names.into_iter().chain([scripted("next", []).0.after("base")]);
    let hub = ToolHub::builder().shared_store(store).clock(TestClock::new()).tools(tools).build().await.unwrap();
    let skipping = "skipping unreadable stored record";
    let flaky = format!(
        "WARN message={skipping} table=statuses id=flaky reason=it does not have the expected structure (line 1, column 21)"
    );
    let later = "WARN message=skipping a record of a newer version error=the stored statuses record `later` has layout 2, and this version \
                 of Toolhub reads layouts up to 1: a newer version wrote it; update this one"
        .to_owned();
    assert_eq!(lines(), [flaky.clone(), later]);

    let (tenant, id) = (Tenant::default(), ThreadId::new("t1").unwrap());
    hub.call("flaky", json!({})).thread("t1").await.assert_success();
    let view = StatusScope::Thread(&tenant, &id);
    hub.set_tool_status("flaky", ToolStatus::Maintenance, None, None, view).await.unwrap();
    let changed = "WARN message=tool status changed tool=\"flaky\" status=\"maintenance\" before=\"available\" thread=\"t1\" \
                   reason=\"in maintenance\"";
    assert_eq!(lines(), [flaky, changed.to_owned()]);
    hub.call("flaky", json!({})).thread("t1").await.assert_error(ErrorKind::ToolMaintenance);
    hub.call("next", json!({})).thread("t1").await.assert_error(ErrorKind::DependencyNotMet);
    let evidence =
        format!("WARN message={skipping} table=evidence id=evidence reason=it is not JSON (line 1, column 3)");
    assert_eq!(lines(), std::slice::from_ref(&evidence));
    hub.call("base", json!({})).thread("t1").await.assert_success();
    assert_eq!(lines(), [evidence]);
    hub.call("next", json!({})).thread("t1").await.assert_success();
    assert_eq!(lines(), Vec::<String>::new(), "once it is replaced, nothing is logged");
}

#[tokio::test(start_paused = true)]
async fn an_operators_override_until_the_end_of_time_survives_a_restart() {
    let (store, clock): (Arc<dyn Backend>, _) = (Arc::new(Memory::new()), TestClock::new());
    let hub = async || {
        let builder = ToolHub::builder().shared_store(store.clone()).clock(clock.clone());
        builder.tool(scripted("flaky", []).0).build().await.unwrap()
    };
    for end in [i64::MAX, i64::MAX / 2, 253_402_300_800_000] {
        let first = hub().await;
        let until = Some(Timestamp::from_millis(end));
        first.set_tool_status("flaky", ToolStatus::Maintenance, None, until, StatusScope::Shared).await.unwrap();
        drop(first);
        hub().await.call("flaky", json!({})).await.assert_error(ErrorKind::ToolMaintenance);
    }
}

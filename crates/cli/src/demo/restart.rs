//! Tour: a process is killed in the middle of a call, and another one recovers its store.
//!
//! In: the store of a closed hub. Out: the hub that reopens it, and what it recovered. The killed process is this program, started
//! again on the same store.

use std::{error::Error, path::Path, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};
use toolhub::{ToolHub, events::EventKind, prelude::json};

use super::{print, tools};

/// The idempotency key of the interrupted call.
const IDEMPOTENCY_KEY: &str = "order-19";
const STEPS: u32 = 5;
/// Drain timeout; no calls are running.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout for the start of the second process; far longer than it takes.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Printed by the second process when its call is running.
const READY_LINE: &str = "busy";

/// Lets a second process work on the store, kills it, and reopens the store.
pub(super) async fn run(hub: ToolHub, store: &Path) -> Result<ToolHub, Box<dyn Error>> {
    print::print_line(
        "All of this is stored in one SQLite file. This process closes it, and a second one continues with it:",
    );
    hub.shutdown(DRAIN_TIMEOUT).await;
    drop(hub);
    let mut second = Command::new(std::env::current_exe()?);
    second.args(["demo", "--work-on"]).arg(store).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut second = second.spawn()?;
    let mut lines = BufReader::new(second.stdout.take().ok_or("the second process has no stdout")?).lines();
    loop {
        match tokio::time::timeout(STARTUP_TIMEOUT, lines.next_line()).await??.as_deref() {
            Some(READY_LINE) => break,
            Some(line) => print::detail(line),
            None => return Err("the second process exited early".into()),
        }
    }
    second.kill().await?;
    print::print_line("It was killed in the middle of that call (kill -9). What it had acknowledged is still there:");
    let hub = tools::build_hub(store).await?;
    let arguments = json!({});
    print::call("notes", &arguments, "in thread demo");
    print::outcome(&hub.call("notes", arguments).thread("demo").await);
    print::print_line(
        "The interrupted call has an outcome too. Repeating it with its idempotency key does not run it twice:",
    );
    let arguments = json!({"steps": STEPS});
    print::call("slow", &arguments, &format!("key {IDEMPOTENCY_KEY}"));
    print::outcome(&hub.call("slow", arguments).idempotency_key(IDEMPOTENCY_KEY).await);
    Ok(hub)
}

/// The work of the second process until it is killed.
pub(super) async fn run_worker(store: &Path) -> Result<(), Box<dyn Error>> {
    let hub = tools::build_hub(store).await?;
    let outcome = hub.call("notes", json!({"add": "written by the second process"})).thread("demo").await;
    println!("process {}: a line was added to the notes: {}", std::process::id(), outcome.is_success());
    let mut events = hub.subscribe();
    let _running = hub.call("slow", json!({"steps": STEPS})).idempotency_key(IDEMPOTENCY_KEY).start();
    while !matches!(events.next().await.kind, EventKind::ExecutionStarted { .. }) {}
    println!("process {}: slow {{\"steps\":{STEPS}}} with key {IDEMPOTENCY_KEY} has started", std::process::id());
    println!("{READY_LINE}");
    // The process is killed long before this ends. If its parent is gone, it must not stay behind.
    tokio::time::sleep(2 * STARTUP_TIMEOUT).await;
    Ok(())
}

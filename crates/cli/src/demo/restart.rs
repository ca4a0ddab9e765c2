//! The stop at which a process is killed in the middle of its work, and another goes on where it was.
//!
//! In: the file of a hub that was closed. Out: the hub that opens it next, and what it found. The process that is killed is
//! this program once more, told to work on the same file.

use std::{error::Error, path::Path, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};
use toolhub::{ToolHub, events::EventKind, prelude::json};

use super::{pack, print};

/// The call that is cut off, and the key it was made with.
const IDEMPOTENCY_KEY: &str = "order-19";
const STEPS: u32 = 5;
/// How long running calls may go on; there are none.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it takes at most until the second process has begun; far longer than it does.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);
/// What the process says when there is something to be lost.
const READY_LINE: &str = "busy";

/// Lets a second process work on the file, kills it, and opens the file again.
pub(super) async fn run(hub: ToolHub, store: &Path) -> Result<ToolHub, Box<dyn Error>> {
    print::say("All of this was kept in one SQLite file. This process closes it, and a second one goes on with it:");
    hub.shutdown(DRAIN_TIMEOUT).await;
    drop(hub);
    let mut second = Command::new(std::env::current_exe()?);
    second.args(["demo", "--work-on"]).arg(store).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut second = second.spawn()?;
    let mut lines = BufReader::new(second.stdout.take().ok_or("the second process says nothing")?).lines();
    loop {
        match tokio::time::timeout(STARTUP_TIMEOUT, lines.next_line()).await??.as_deref() {
            Some(READY_LINE) => break,
            Some(line) => print::detail(line),
            None => return Err("the second process ended by itself".into()),
        }
    }
    second.kill().await?;
    print::say("It was killed in the middle of that call (kill -9). What it had acknowledged is there:");
    let hub = pack::build_hub(store).await?;
    let arguments = json!({});
    print::call("notes", &arguments, "in thread demo");
    print::outcome(&hub.call("notes", arguments).thread("demo").await);
    print::say("And the call that nobody ended has an end. Whoever repeats it with its key does not do it twice:");
    let arguments = json!({"steps": STEPS});
    print::call("slow", &arguments, &format!("key {IDEMPOTENCY_KEY}"));
    print::outcome(&hub.call("slow", arguments).idempotency_key(IDEMPOTENCY_KEY).await);
    Ok(hub)
}

/// What the second process does until it is killed.
pub(super) async fn run_worker(store: &Path) -> Result<(), Box<dyn Error>> {
    let hub = pack::build_hub(store).await?;
    let noted = hub.call("notes", json!({"add": "written by the second process"})).thread("demo").await;
    println!("process {}: a line was added to the notes: {}", std::process::id(), noted.is_success());
    let mut events = hub.subscribe();
    let _running = hub.call("slow", json!({"steps": STEPS})).idempotency_key(IDEMPOTENCY_KEY).start();
    while !matches!(events.next().await.kind, EventKind::ExecutionStarted { .. }) {}
    println!("process {}: slow {{\"steps\":{STEPS}}} with key {IDEMPOTENCY_KEY} has begun", std::process::id());
    println!("{READY_LINE}");
    // It is killed long before. If whoever wanted to do that is gone, it must not stay behind.
    tokio::time::sleep(2 * STARTUP_TIMEOUT).await;
    Ok(())
}

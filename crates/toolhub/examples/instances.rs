//! A connection per thread: reused, isolated, closed when idle, replaced after a crash.
//!
//! `cargo run -p toolhub --example instances`

use std::{
    error::Error,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use toolhub::{
    events::{EventKind, Subscription},
    prelude::*,
};

/// A session with a database, in which variables live as long as the connection.
struct Connection {
    number: u32,
    variables: Vec<String>,
}

/// Set a variable of the session; answers with the connection's number and all variables.
#[derive(Deserialize, JsonSchema)]
struct Set {
    variable: String,
}

impl Instance for Connection {
    type Arguments = Set;
    type Output = (u32, Vec<String>);

    async fn call(&mut self, set: Set, _: &CallContext) -> Result<Self::Output, ToolError> {
        if set.variable == "poison" {
            // The instance reports itself as unusable. A panic has the same effect.
            return Err(ToolError::with_kind(ErrorKind::Crashed, "the server closed the connection"));
        }
        self.variables.push(set.variable);
        Ok((self.number, self.variables.clone()))
    }

    async fn close(self) {
        println!("  connection {} is closed", self.number);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    static OPENED: AtomicU32 = AtomicU32::new(1);
    let connect = |cx: CallContext| async move {
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        println!("  connection {number} is opened for {}", cx.thread().map_or("no thread", ThreadId::as_str));
        Ok(Connection { number, variables: Vec::new() })
    };
    // The default is half an hour, too long for an example.
    let builder = ToolHub::builder().instance_idle_timeout(Duration::from_secs(2));
    let hub = builder.tool(instance("session", connect)).build().await?;
    let mut events = hub.subscribe();
    let set = async |thread: &str, variable: &str| {
        let outcome = hub.call("session", json!({"variable": variable})).thread(thread).await;
        println!("{thread}: {}", outcome.model_text());
        outcome
    };

    println!("one connection for all calls of a thread");
    set("monday", "tea").await;
    assert_eq!(set("monday", "milk").await.output, json!([1, ["tea", "milk"]]));

    println!("another thread never sees it");
    assert_eq!(set("tuesday", "coffee").await.output, json!([2, ["coffee"]]));

    println!("after a crash the next call gets a new one");
    let crashed = set("monday", "poison").await;
    assert_eq!(crashed.error_kind(), Some(ErrorKind::Crashed));
    assert_eq!(set("monday", "sugar").await.output, json!([3, ["sugar"]]));
    assert_eq!(next_reason(&mut events).await, "it crashed");

    println!("time passes without a call");
    for _ in ["monday", "tuesday"] {
        assert_eq!(next_reason(&mut events).await, "it was idle");
    }
    assert_eq!(hub.thread_contexts().instances(), 0);

    println!("a session can be opened before the first call");
    let (tenant, wednesday) = (Tenant::default(), ThreadId::new("wednesday")?);
    hub.open_session("session", &tenant, &wednesday).await?;
    assert!(hub.thread_context(&tenant, &wednesday).info("session").is_some());
    assert_eq!(set("wednesday", "water").await.output, json!([4, ["water"]]));

    println!("and everything is closed at the end");
    hub.shutdown(Duration::from_secs(1)).await;
    assert_eq!(next_reason(&mut events).await, "the hub was shut down");
    Ok(())
}

/// Waits until an instance is removed, and returns the reason.
async fn next_reason(events: &mut Subscription) -> &'static str {
    loop {
        if let EventKind::ExecutorCleaned { reason, .. } = events.next().await.kind {
            println!("  an instance was removed: {reason}");
            return reason;
        }
    }
}

//! A tool that fails three times, is withheld, and recovers automatically.
//!
//! `cargo run -p toolhub --example flaky`

use std::{
    error::Error,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use toolhub::{
    StatusScope,
    events::{EventKind, Subscription},
    ids::{Tenant, ThreadId},
    prelude::*,
    status::{StatusSettings, ToolStatus},
};

/// A weather station that does not answer the first three times.
#[derive(Default)]
struct Station {
    requests: AtomicU32,
}

async fn weather(_: NoArguments, station: Shared<Station>) -> Result<&'static str, ToolError> {
    if station.requests.fetch_add(1, Ordering::Relaxed) < 3 {
        // A failure of the upstream service counts for all threads, not only for this one.
        return Err(ToolError::with_kind(ErrorKind::UpstreamUnreachable, "the weather station does not answer"));
    }
    Ok("sunny, 21 °C")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The default is five minutes, too long for an example.
    let settings = StatusSettings { failure_duration: Duration::from_millis(500), ..StatusSettings::default() };
    let hub = ToolHub::builder()
        .status(settings)
        .resource(Station::default())
        // With the default retries of a read-only tool, the first call would succeed.
        .tool(tool("weather", weather).description("The weather outside.").read_only().no_retry())
        .build()
        .await?;
    let mut events = hub.subscribe();

    for number in 1..=3 {
        let failed = hub.call("weather", json!({})).thread("monday").await;
        println!("call {number}: {}", failed.model_text());
        assert_eq!(failed.error_kind(), Some(ErrorKind::UpstreamUnreachable));
    }
    assert_eq!(status_events(&mut events), ["available -> failed", "withheld"]);
    assert!(!is_offered(&hub).await?);

    let refused = hub.call("weather", json!({})).thread("tuesday").await;
    println!("another thread: {}", refused.model_text());
    let error = refused.error.ok_or("a withheld tool was called")?;
    let wait = error.retry_after.ok_or("a withheld tool comes back")?;
    println!("  for operators: {}; retry in {wait:?}", error.operator);
    assert_eq!(error.kind, ErrorKind::ToolFailedStatus);
    assert!(wait <= Duration::from_millis(500));

    println!("time passes without a call");
    tokio::time::timeout(Duration::from_secs(3), wait_until_offered(&mut events)).await?;
    assert!(is_offered(&hub).await?);

    // This call is the probe: had it failed, the tool would be withheld again, for about twice as long.
    let probe = hub.call("weather", json!({})).thread("monday").await;
    println!("the probe: {}", probe.output);
    assert_eq!(probe.output, json!("sunny, 21 °C"));
    let info = hub.tool_status("weather", StatusScope::Shared).await.map_err(|error| error.operator)?;
    println!("status: {:?}, {}, {} failures in a row", info.status, info.reason, info.consecutive_failures);
    assert_eq!((info.status, info.consecutive_failures), (ToolStatus::Available, 0));
    Ok(())
}

/// Whether the tool is available in a new thread.
async fn is_offered(hub: &ToolHub) -> Result<bool, Box<dyn Error>> {
    let thread = ThreadId::new("wednesday")?;
    let names =
        hub.available_tools(StatusScope::Thread(&Tenant::default(), &thread)).await.map_err(|error| error.operator)?;
    println!("available tools: {:?}", names.iter().map(ToString::to_string).collect::<Vec<_>>());
    Ok(names.iter().any(|name| name.as_str() == "weather"))
}

/// The status events so far.
fn status_events(events: &mut Subscription) -> Vec<String> {
    std::iter::from_fn(|| events.try_next()).filter_map(|event| print_status_event(&event.kind)).collect()
}

/// Waits for the event that the tool is available again.
async fn wait_until_offered(events: &mut Subscription) {
    while print_status_event(&events.next().await.kind).is_none_or(|change| change != "offered again") {}
}

/// Prints a status event; ignores all others.
fn print_status_event(event: &EventKind) -> Option<String> {
    let (change, reason) = match event {
        EventKind::StatusChanged { old_status, new_status, reason, .. } => {
            let old = old_status.map(|old| format!("{old:?} -> ")).unwrap_or_default();
            (format!("{old}{new_status:?}").to_lowercase(), reason)
        }
        EventKind::AvailabilityChanged { available: true, reason, .. } => ("offered again".to_owned(), reason),
        EventKind::AvailabilityChanged { available: false, reason, .. } => ("withheld".to_owned(), reason),
        _ => return None,
    };
    println!("  {}: {change} ({reason})", event.name());
    Some(change)
}

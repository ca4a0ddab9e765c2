//! The sections of the tour, in the order in which a newcomer meets the features.

use std::{collections::BTreeMap, error::Error, time::Duration};

use anstream::println;
use tokio::time::Instant;
use toolhub::{
    StatusScope, ToolFilter, ToolHub,
    events::{EventKind, Subscription},
    export::Format,
    ids::{Tenant, ThreadId},
    prelude::{Content, Value, json},
};

use super::{approval, mcp_server, print, restart, tools};

pub(super) async fn run() -> Result<(), Box<dyn Error>> {
    let folder = crate::temp_folder::TempFolder::new()?;
    let hub = tools::build_hub(&folder.path().join("toolhub.db")).await?;
    let mut counts = BTreeMap::new();
    let mut events = hub.subscribe();
    println!("toolhub {}: a tour of the features", env!("CARGO_PKG_VERSION"));
    show_tools(&hub);
    show_call(&hub).await;
    show_invalid_calls(&hub).await;
    show_state(&hub).await;
    show_call_endings(&hub).await;
    show_idempotency(&hub).await;
    show_output_limit(&hub).await?;
    show_exports(&hub);
    show_retries(&hub).await;
    show_failing_tool(&hub).await?;
    show_dependencies(&hub).await?;
    show_batch(&hub).await;
    show_rate_limit(&hub).await;
    print::heading(14, "The tool of an MCP server leaves and returns with its process");
    mcp_server::run(&hub).await?;
    print::heading(15, "Acknowledged data survives a killed process");
    count_events(&mut events, &mut counts);
    let hub = restart::run(hub, &folder.path().join("toolhub.db")).await?;
    let mut events = hub.subscribe();
    print::heading(16, "Some calls require approval");
    approval::run(&hub).await?;
    count_events(&mut events, &mut counts);
    show_event_counts(&counts);
    show_next_steps();
    Ok(())
}

async fn call(hub: &ToolHub, tool: &str, arguments: Value, thread: Option<&str>) {
    print::call(tool, &arguments, &thread.map_or(String::new(), |thread| format!("in thread {thread}")));
    let request = hub.call(tool, arguments);
    print::outcome(&match thread {
        Some(thread) => request.thread(thread).await,
        None => request.await,
    });
}

fn show_tools(hub: &ToolHub) {
    print::heading(1, "The tools of the hub");
    for tool in hub.list(&ToolFilter::default()) {
        let definition = &tool.definition;
        println!("   {:<11} {:<10} {}", definition.name, definition.kind, definition.description);
    }
}

async fn show_call(hub: &ToolHub) {
    print::heading(2, "Every call has exactly one outcome");
    call(hub, "calculator", json!({"expression": "(1 + 2) * 14"}), None).await;
    call(hub, "calculator", json!({"expression": "2 x 3"}), None).await;
    call(hub, "clock", json!({}), None).await;
}

async fn show_invalid_calls(hub: &ToolHub) {
    print::heading(3, "Errors tell the model how to correct the call");
    call(hub, "calculater", json!({"expression": "1"}), None).await;
    call(hub, "calculator", json!({"expresion": "1 + 1"}), None).await;
    call(hub, "counter", json!({"by": "three"}), Some("demo")).await;
}

async fn show_state(hub: &ToolHub) {
    print::heading(4, "Tool state is kept per thread; a failed call does not change it");
    call(hub, "notes", json!({"add": "buy milk"}), Some("demo")).await;
    call(hub, "notes", json!({"add": ""}), Some("demo")).await;
    call(hub, "notes", json!({"add": "call Ann"}), Some("demo")).await;
    call(hub, "notes", json!({}), Some("other")).await;
}

async fn show_call_endings(hub: &ToolHub) {
    print::heading(5, "Timeouts, crashes and cancelled calls have an outcome too, which names the effect");
    call(hub, "slow", json!({"steps": 3}), None).await;
    call(hub, "slow", json!({"steps": 50}), None).await;
    call(hub, "crash", json!({}), None).await;
    let arguments = json!({"steps": 5});
    print::call("slow", &arguments, "cancelled immediately");
    let running = hub.call("slow", arguments).start();
    running.cancel();
    print::outcome(&running.await);
}

async fn show_idempotency(hub: &ToolHub) {
    print::heading(6, "Calls with the same idempotency key run once");
    let arguments = json!({"by": 5});
    for key in ["order-17", "order-17", "order-18"] {
        print::call("counter", &arguments, &format!("in thread demo, key {key}"));
        print::outcome(&hub.call("counter", arguments.clone()).thread("demo").idempotency_key(key).await);
    }
}

async fn show_output_limit(hub: &ToolHub) -> Result<(), Box<dyn Error>> {
    print::heading(7, "Long output is truncated for the model and kept as an artifact");
    print::call("library", &json!({}), "");
    let outcome = hub.call("library", json!({})).await;
    let text = outcome.model_text();
    print::print_line(&format!("the model gets {} characters, which end with:", text.chars().count()));
    print::print_line(text.lines().last().unwrap_or_default());
    for content in &outcome.content {
        if let Content::Artifact { id, .. } = content
            && let Some(artifact) = hub.artifact(&Tenant::default(), id).await?
        {
            print::detail(&format!("fetched: {} bytes of {}", artifact.bytes.len(), artifact.mime_type));
        }
    }
    Ok(())
}

fn show_exports(hub: &ToolHub) {
    print::heading(8, "The same tools for every model provider");
    for format in Format::ALL {
        let first = hub.export(format).into_iter().next().unwrap_or_default();
        let text: String = first.to_string().chars().take(96).collect();
        println!("   {:<17} {text}…", format.to_string());
    }
}

async fn show_retries(hub: &ToolHub) {
    print::heading(9, "Transient failures are retried, if that is safe");
    call(hub, "transient", json!({}), None).await;
}

async fn show_failing_tool(hub: &ToolHub) -> Result<(), Box<dyn Error>> {
    print::heading(10, "A failing tool is withheld, and recovers automatically");
    let mut events = hub.subscribe();
    for _ in 0..4 {
        call(hub, "flaky", json!({}), None).await;
    }
    print::print_line(&format!(
        "By default it is withheld for five minutes, in this demo for {} ms. Until then:",
        tools::FAILURE_DURATION.as_millis()
    ));
    print_available_tools(hub, "demo").await?;
    // The end of the wait is announced by an event. The timeout keeps the tour from hanging.
    tokio::time::timeout(Duration::from_secs(2), wait_until_available(&mut events)).await?;
    print::print_line(
        "The wait is over. One call probes the tool; had it failed, the next wait would be about twice as long.",
    );
    call(hub, "flaky", json!({}), None).await;
    Ok(())
}

/// Prints availability events until a tool that was withheld is available again.
pub(super) async fn wait_until_available(events: &mut Subscription) {
    let mut was_withheld = false;
    loop {
        let event = events.next().await;
        if let EventKind::AvailabilityChanged { tool_name, available, reason } = &event.kind {
            if *available && !was_withheld {
                // About something that happened before.
                continue;
            }
            was_withheld = true;
            let state = if *available { "is available again" } else { "is withheld" };
            print::detail(&format!("{}: {tool_name} {state} ({reason})", event.name()));
            if *available {
                return;
            }
        }
    }
}

async fn show_dependencies(hub: &ToolHub) -> Result<(), Box<dyn Error>> {
    print::heading(11, "A tool may depend on another, per thread");
    print_available_tools(hub, "demo").await?;
    call(hub, "digest", json!({}), Some("demo")).await;
    call(hub, "clock", json!({}), Some("demo")).await;
    print_available_tools(hub, "demo").await?;
    call(hub, "digest", json!({}), Some("demo")).await;
    call(hub, "digest", json!({}), Some("other")).await;
    Ok(())
}

async fn show_batch(hub: &ToolHub) {
    print::heading(12, "In a batch, read-only calls run concurrently; others run alone, in order");
    let calls = [
        ("search", json!({"word": "tea"})),
        ("search", json!({"word": "milk"})),
        ("notes", json!({"add": "read about tea"})),
    ];
    let started = Instant::now();
    let requests = calls.iter().map(|(tool, arguments)| hub.call(*tool, arguments.clone()).thread("demo"));
    let outcomes = hub.batch(requests).await;
    let duration = started.elapsed();
    for ((tool, arguments), outcome) in calls.iter().zip(&outcomes) {
        print::call(tool, arguments, "in thread demo");
        print::outcome(outcome);
    }
    let one = tools::SEARCH_DURATION.as_millis();
    print::print_line(&format!("A search takes {one} ms. The whole step took {} ms.", duration.as_millis()));
}

async fn show_rate_limit(hub: &ToolHub) {
    print::heading(13, "Rate limits");
    print::print_line("The catalogue allows two searches a minute, and both are used up.");
    call(hub, "search", json!({"word": "honey"}), None).await;
}

async fn print_available_tools(hub: &ToolHub, thread: &str) -> Result<(), Box<dyn Error>> {
    let names = hub.available_tools(StatusScope::Thread(&Tenant::default(), &ThreadId::new(thread)?)).await;
    let names: Vec<String> = names.map_err(|error| error.operator)?.iter().map(ToString::to_string).collect();
    print::print_line(&format!("available in thread {thread}: {}", names.join(" ")));
    Ok(())
}

fn count_events(events: &mut Subscription, counts: &mut BTreeMap<&'static str, u32>) {
    while let Some(event) = events.try_next() {
        *counts.entry(event.name()).or_insert(0) += 1;
    }
}

fn show_event_counts(counts: &BTreeMap<&'static str, u32>) {
    print::heading(17, "Every step was published as an event");
    for (name, count) in counts {
        println!("   {count:>3} × {name}");
    }
}

fn show_next_steps() {
    print::heading(18, "What next");
    print::print_line(
        "`toolhub demo` serves other sample tools over HTTP, with an agent; the page /docs tries every route.",
    );
    print::print_line(
        "`toolhub init` writes a config for tools of your own; docs/guide/first-tools.md defines them in Rust.",
    );
}

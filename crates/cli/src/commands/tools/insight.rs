//! `tools deps` and `tools stats`: what tools depend on, and how their calls went.

use std::collections::BTreeMap;

use super::{super::paging::pointer_text, with_help};
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    output::{Column, Fields, Table, format_millis},
    session::Session,
};

/// Show which tools must succeed before others.
#[derive(Debug, clap::Args)]
pub(crate) struct Deps {
    /// Only what this tool depends on, and what depends on it
    tool: Option<String>,
}

/// Show the statistics of a tool.
#[derive(Debug, clap::Args)]
pub(crate) struct Stats {
    /// Name of the tool
    tool: String,
    /// Only calls that ended within this time, such as 1h, also before a restart
    #[arg(long, value_name = "DURATION")]
    window: Option<String>,
}

pub(super) async fn deps(session: &Session, args: &Deps) -> Result<Exit, Failure> {
    if let Some(tool) = &args.tool {
        let found = session.send_checked(Request::get(["tools", tool])).await;
        found.map_err(|failure| with_help(failure, "deps", tool))?;
    }
    let response = session.send_checked(Request::get(["graph"])).await?;
    if session.printer.json && args.tool.is_none() {
        session.printer.print_json(&response.text());
        return Ok(Exit::Success);
    }
    let graph = response.json()?;
    let edges = graph["edges"].as_array().into_iter().flatten();
    let concerns = |edge: &&serde_json::Value| {
        args.tool.as_ref().is_none_or(|tool| edge["from"] == tool.as_str() || edge["to"] == tool.as_str())
    };
    let edges: Vec<&serde_json::Value> = edges.filter(concerns).collect();
    if session.printer.json {
        session.printer.print_json(&serde_json::json!({ "edges": edges }).to_string());
        return Ok(Exit::Success);
    }
    // One row per group of a tool: its tools are alternatives, a sequence, or all needed.
    let mut groups = BTreeMap::<(String, String), (String, Vec<String>)>::new();
    for edge in edges {
        let group = groups.entry((pointer_text(edge, "/to"), pointer_text(edge, "/group"))).or_default();
        group.0 = pointer_text(edge, "/needs");
        group.1.push(pointer_text(edge, "/from"));
    }
    if groups.is_empty() {
        session.printer.note("no dependencies");
        return Ok(Exit::Success);
    }
    let mut table = Table::new([Column::new("TOOL"), Column::new("NEEDS"), Column::new("TOOLS").shrink_to(12)]);
    for ((tool, _), (needs, tools)) in groups {
        table.add_row([tool, needs, tools.join(", ")]);
    }
    session.printer.print(&table.render(session.printer.width, session.printer.ascii));
    Ok(Exit::Success)
}

pub(super) async fn stats(session: &Session, args: &Stats) -> Result<Exit, Failure> {
    let request = Request::get(["tools", &args.tool, "stats"]).query("window", args.window.as_deref());
    let response = session.send_checked(request).await.map_err(|failure| with_help(failure, "stats", &args.tool))?;
    if session.printer.json {
        session.printer.print_json(&response.text());
        return Ok(Exit::Success);
    }
    let stats = response.json()?;
    let counts = |field: &str| {
        let counts = stats[field].as_object().into_iter().flatten();
        counts.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    };
    let latency = |field: &str| stats["latency"][field].as_f64().map(format_millis).unwrap_or_default();
    let mut fields = Fields::default();
    fields.add("tool", pointer_text(&stats, "/tool"));
    fields.add("calls", pointer_text(&stats, "/calls"));
    fields.add("errors", counts("errors"));
    fields.add("refusals", counts("refusals"));
    fields.add("retries", pointer_text(&stats, "/retries"));
    if stats["calls"].as_u64() > Some(0) {
        let latencies = [("p50", "p50Ms"), ("p95", "p95Ms"), ("p99", "p99Ms"), ("max", "maxMs")];
        let latencies = latencies.map(|(label, field)| format!("{label} {}", latency(field)));
        fields.add("latency", latencies.join(", "));
    }
    if stats["cacheHits"].as_u64().unwrap_or(0) + stats["cacheMisses"].as_u64().unwrap_or(0) > 0 {
        let (hits, misses) = (&stats["cacheHits"], &stats["cacheMisses"]);
        fields.add("cache", format!("{hits} hits, {misses} misses"));
    }
    if stats["complete"] == false {
        session.printer.note(&format!("too many calls; only those since {}", pointer_text(&stats, "/from")));
    }
    session.printer.print(&fields.render(session.printer.width, 0));
    Ok(Exit::Success)
}

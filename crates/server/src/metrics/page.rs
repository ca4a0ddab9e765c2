//! The page of `/metrics`: numbers about the hub, the agents, the server and the process.
//!
//! In: the counters of hub, agents and server. Out: text in the Prometheus format. Names of tools and routes are
//! labels; ids of threads and calls never are, to bound the cardinality. A tool without calls has one sample, its
//! status: a hub may have thousands of them.

use std::{collections::HashSet, sync::atomic::Ordering::Relaxed, time::Duration};

use tokio::time::Instant;
use toolhub_agent::AgentService;
use toolhub_core::{
    CancellationToken, SourceConnection, StatusScope, ToolHub, ToolName, ToolStats, status::ToolStatus,
};

use super::prometheus_text::{MetricType, PrometheusText};
use super::store_servers;
use super::{Metrics, alerts};
use crate::{mcp::McpEndpoint, settings::BuildInfo};

/// Timeout for reading the tool statuses from the store.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// The bucket bounds that OpenTelemetry recommends: from 10 ms, doubled each time.
const CALL_BOUNDS: [f64; 14] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/// A healthy store takes microseconds.
const STORE_BOUNDS: [f64; 10] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];

/// A person takes seconds to hours.
const APPROVAL_BOUNDS: [f64; 8] = [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0];

const STATUSES: [ToolStatus; 4] =
    [ToolStatus::Available, ToolStatus::Unavailable, ToolStatus::Failed, ToolStatus::Maintenance];

/// The sources of the numbers.
pub(crate) struct Sources<'a> {
    /// The hub, with its own counters.
    pub(crate) hub: &'a ToolHub,
    /// The agents, with their own counters.
    pub(crate) agents: &'a AgentService,
    /// Whether the store answers.
    pub(crate) is_store_up: bool,
    /// The MCP endpoint, with its own counters.
    pub(crate) mcp: &'a McpEndpoint,
    /// The server's counters.
    pub(crate) meters: &'a Metrics,
    /// Version information.
    pub(crate) build: &'a BuildInfo,
    /// When the server started.
    pub(crate) started: Instant,
    /// Cancelled when the server stops, which aborts a running count of states.
    pub(crate) stopping: &'a CancellationToken,
}

/// Renders all metrics with their current values.
pub(crate) async fn render(sources: &Sources<'_>) -> String {
    let mut text = PrometheusText::default();
    let stats: Vec<ToolStats> = sources.hub.stats().into_iter().filter(is_used).collect();
    calls(&mut text, sources, &stats);
    agents(&mut text, sources);
    statuses(&mut text, sources).await;
    servers(&mut text, sources);
    mcp_endpoint(&mut text, sources);
    changes(&mut text, sources);
    hub(&mut text, sources);
    approvals(&mut text, sources);
    alerts::write(&mut text, sources.hub);
    store(&mut text, sources);
    store_losses(&mut text, sources);
    store_size(&mut text, sources);
    store_servers::write(&mut text, sources.hub, sources.is_store_up);
    states(&mut text, sources).await;
    server(&mut text, sources);
    process(&mut text, sources);
    text.finish()
}

/// Whether anything was counted for a tool.
fn is_used(stats: &ToolStats) -> bool {
    let ToolStats { calls, in_flight, retries, rate_limited, cache_misses, .. } = stats;
    let counts = [*calls, *in_flight, *retries, *rate_limited, *cache_misses];
    counts.into_iter().any(|count| count > 0) || stats.queued + stats.stuck > 0 || !stats.refusals.is_empty()
}

fn calls(text: &mut PrometheusText, sources: &Sources<'_>, stats: &[ToolStats]) {
    let help = "Calls that reached their tool or its result cache, by outcome: `success` or the name of the error.";
    let mut family = text.family("toolhub_tool_calls_total", MetricType::Counter, help);
    for tool in stats {
        let name = tool.tool.as_str();
        let kind = sources.hub.get(name).map(|tool| tool.definition.kind.to_string()).unwrap_or_default();
        family.sample(&[("tool", name), ("kind", &kind), ("outcome", "success")], tool.succeeded.count);
        for (error, count) in &tool.errors {
            family.sample(&[("tool", name), ("kind", &kind), ("outcome", error)], count);
        }
    }
    let help = "Calls that were refused before they reached their tool, by the name of the error.";
    let mut family = text.family("toolhub_tool_refusals_total", MetricType::Counter, help);
    for tool in stats {
        for (error, count) in &tool.refusals {
            family.sample(&[("tool", tool.tool.as_str()), ("error", error)], count);
        }
    }
    let help = "Lookups in the result cache: `hit` or `miss`.";
    let mut family = text.family("toolhub_cache_total", MetricType::Counter, help);
    for tool in stats.iter().filter(|tool| tool.cache_hits + tool.cache_misses > 0) {
        for (result, count) in [("hit", tool.cache_hits), ("miss", tool.cache_misses)] {
            family.sample(&[("tool", tool.tool.as_str()), ("result", result)], count);
        }
    }
    let help = "Duration of calls that reached their tool; `error_type` is the name of the error, empty for a success.";
    let mut family = text.family("gen_ai_execute_tool_duration_seconds", MetricType::Histogram, help);
    for tool in stats {
        let durations =
            [("", &tool.succeeded)].into_iter().chain(tool.failed.iter().map(|(error, latency)| (*error, latency)));
        for (error, latency) in durations.filter(|(_, latency)| latency.count > 0) {
            let labels =
                [("gen_ai_tool_name", tool.tool.as_str()), ("gen_ai_tool_type", "function"), ("error_type", error)];
            family.latency_histogram(&labels, &CALL_BOUNDS, latency);
        }
    }
    let mut per_tool = |name, metric_type, help, value_of: fn(&ToolStats) -> u64| {
        let mut family = text.family(name, metric_type, help);
        for tool in stats {
            family.sample(&[("tool", tool.tool.as_str())], value_of(tool));
        }
    };
    let retries = "Retries of failed attempts.";
    per_tool("toolhub_tool_retries_total", MetricType::Counter, retries, |tool| tool.retries);
    per_tool("toolhub_rate_limited_total", MetricType::Counter, "Calls delayed or refused by a rate limit.", |tool| {
        tool.rate_limited
    });
    per_tool("toolhub_tool_in_flight", MetricType::Gauge, "Calls the tool is executing.", |tool| tool.in_flight);
    per_tool("toolhub_tool_stuck", MetricType::Gauge, "Ended calls whose blocking function still runs.", |tool| {
        tool.stuck as u64
    });
}

fn agents(text: &mut PrometheusText, sources: &Sources<'_>) {
    let stats = sources.agents.meters().snapshot();
    let help = "Duration of agent runs, waits included; `error_type` is empty for a run that completed.";
    let mut family = text.family("gen_ai_invoke_agent_duration_seconds", MetricType::Histogram, help);
    for ((agent, error), histogram) in &stats.runs {
        let labels = [("gen_ai_agent_name", agent.as_str()), ("error_type", error.as_str())];
        family.histogram(&labels, &toolhub_agent::RUN_SECONDS_BUCKETS, histogram);
    }
    let help = "Duration of model requests, retries included.";
    let mut family = text.family("gen_ai_client_operation_duration_seconds", MetricType::Histogram, help);
    for ((model, error), histogram) in &stats.requests {
        let labels = [
            ("gen_ai_operation_name", "chat"),
            ("gen_ai_request_model", model.as_str()),
            ("error_type", error.as_str()),
        ];
        family.histogram(&labels, &toolhub_agent::REQUEST_SECONDS_BUCKETS, histogram);
    }
    let help = "Tokens that models read and wrote per response.";
    let mut family = text.family("gen_ai_client_token_usage", MetricType::Histogram, help);
    for ((model, token_type), histogram) in &stats.tokens {
        let labels = [("gen_ai_request_model", model.as_str()), ("gen_ai_token_type", *token_type)];
        family.histogram(&labels, &toolhub_agent::TOKEN_BUCKETS, histogram);
    }
}

async fn statuses(text: &mut PrometheusText, sources: &Sources<'_>) {
    // A store that does not respond must not hide the other metrics.
    let statuses = tokio::time::timeout(STATUS_TIMEOUT, sources.hub.tool_statuses(StatusScope::Shared));
    let Ok(Ok(tools)) = statuses.await else { return };
    let help = "1 for the tool's current shared status; 0 for the others, where it ever changed.";
    let mut family = text.family("toolhub_tool_status", MetricType::Gauge, help);
    let changed: HashSet<ToolName> = sources.hub.status_changes().into_iter().map(|change| change.tool).collect();
    for tool in tools {
        let has_changed = changed.contains(&tool.tool_name);
        for status in STATUSES.into_iter().filter(|status| has_changed || *status == tool.status) {
            let labels = [("tool", tool.tool_name.as_str()), ("status", status.as_str())];
            family.sample(&labels, u8::from(tool.status == status));
        }
    }
}

fn servers(text: &mut PrometheusText, sources: &Sources<'_>) {
    let help = "Whether the MCP server is connected: 1 or 0.";
    let mut family = text.family("toolhub_mcp_server_up", MetricType::Gauge, help);
    for info in sources.hub.sources().iter().map(|source| source.info()) {
        // A disabled server is down on purpose: no alarm should see it.
        if info.status.connection != SourceConnection::Disabled {
            let is_up = info.status.connection == SourceConnection::Connected;
            family.sample(&[("server", &info.status.name)], u8::from(is_up));
        }
    }
    let help = "Duration of requests to MCP servers, failed ones included.";
    let mut family = text.family("mcp_client_operation_duration_seconds", MetricType::Histogram, help);
    for source in sources.hub.sources() {
        for (method, latency) in source.operations().iter().filter(|(_, latency)| latency.count > 0) {
            family.latency_histogram(&[("server", source.name()), ("mcp_method_name", method)], &CALL_BOUNDS, latency);
        }
    }
    let help = "Outputs of tools of the MCP server that do not fit the tool's own output schema.";
    let mut family = text.family("toolhub_mcp_output_mismatches_total", MetricType::Counter, help);
    for source in sources.hub.sources() {
        if source.info().status.connection != SourceConnection::Disabled {
            family.sample(&[("server", source.name())], source.output_mismatches());
        }
    }
}

fn mcp_endpoint(text: &mut PrometheusText, sources: &Sources<'_>) {
    let meters = sources.mcp.meters();
    let help = "Duration of requests of MCP clients, failed ones included.";
    let mut family = text.family("mcp_server_operation_duration_seconds", MetricType::Histogram, help);
    for (method, latency) in meters.latencies() {
        family.latency_histogram(&[("mcp_method_name", method)], &CALL_BOUNDS, &latency);
    }
    text.single("toolhub_mcp_sessions", MetricType::Gauge, "Sessions of MCP clients.", sources.mcp.sessions());
    let help = "MCP clients that listen to changes.";
    text.single("toolhub_mcp_listeners", MetricType::Gauge, help, meters.listeners());
}

fn changes(text: &mut PrometheusText, sources: &Sources<'_>) {
    let help = "Status changes of a tool, shared or in one thread.";
    let mut family = text.family("toolhub_tool_status_transitions_total", MetricType::Counter, help);
    for change in sources.hub.status_changes() {
        let labels = [("tool", change.tool.as_str()), ("from", change.from.as_str()), ("to", change.to.as_str())];
        family.sample(&labels, change.count);
    }
}

fn approvals(text: &mut PrometheusText, sources: &Sources<'_>) {
    let stats = sources.hub.approval_stats();
    text.single("toolhub_approvals_pending", MetricType::Gauge, "Approvals waiting for a decision.", stats.pending);
    let help = "Time until an approval was decided by a person.";
    text.family("toolhub_approval_wait_seconds", MetricType::Histogram, help).latency_histogram(
        &[],
        &APPROVAL_BOUNDS,
        &stats.wait,
    );
}

fn store(text: &mut PrometheusText, sources: &Sources<'_>) {
    let help = "Duration of store operations, failed ones included.";
    let mut family = text.family("toolhub_store_operation_seconds", MetricType::Histogram, help);
    for stats in sources.hub.store_stats() {
        family.latency_histogram(&[("backend", stats.backend), ("op", stats.operation)], &STORE_BOUNDS, &stats.latency);
    }
}

fn store_losses(text: &mut PrometheusText, sources: &Sources<'_>) {
    let help = "Commits that the store acknowledged to this node and has lost, in a fail-over for example.";
    text.single("toolhub_store_lost_commits_total", MetricType::Counter, help, sources.hub.lost_commits());
}

fn store_size(text: &mut PrometheusText, sources: &Sources<'_>) {
    let Some(size) = sources.hub.store_size() else { return };
    let help = "Size of the store: of its file, or in memory of journal, events, artifacts and threads.";
    text.single("toolhub_store_bytes", MetricType::Gauge, help, size.bytes);
    let help = "Maximum size of the store (`store.max_size`).";
    text.single("toolhub_store_limit_bytes", MetricType::Gauge, help, size.limit);
    let help = "Ended calls removed because the store was near its maximum size, oldest first.";
    text.single("toolhub_journal_trimmed_total", MetricType::Counter, help, size.trimmed_calls);
}

async fn states(text: &mut PrometheusText, sources: &Sources<'_>) {
    let help = "Stored states, as of the last count.";
    let mut family = text.family("toolhub_state_entries", MetricType::Gauge, help);
    for (kind, count) in sources.meters.state_counter.counts(sources.hub, sources.stopping).await {
        family.sample(&[("type", kind.as_str())], count);
    }
}

fn hub(text: &mut PrometheusText, sources: &Sources<'_>) {
    let hub = sources.hub;
    text.single("toolhub_queue_depth", MetricType::Gauge, "Calls waiting in queues.", hub.queued_calls());
    text.single("toolhub_calls_running", MetricType::Gauge, "Calls running on their own tasks.", hub.running_calls());
    text.single("toolhub_tools", MetricType::Gauge, "Registered tools.", hub.tools().len());
    let help = "Threads used on this node within about ten minutes.";
    text.single("toolhub_threads_active", MetricType::Gauge, help, hub.active_threads());
    let help = "Events dropped because a subscriber, or the store that persists them, was too slow.";
    text.single("toolhub_events_dropped_total", MetricType::Counter, help, hub.dropped_events());
    let journal = hub.journal_stats();
    let help = "Journal records of read-only calls that were written.";
    text.single("toolhub_journal_written_total", MetricType::Counter, help, journal.written);
    text.single(
        "toolhub_journal_dropped_total",
        MetricType::Counter,
        "Journal records that were dropped.",
        journal.dropped,
    );
}

fn server(text: &mut PrometheusText, sources: &Sources<'_>) {
    let (routes, listener) = (sources.meters.routes(), &sources.meters.listener);
    let mut family = text.family("toolhub_http_requests_total", MetricType::Counter, "Answered requests.");
    for (route, method, meter) in &routes {
        for (digit, class) in [(1, "1xx"), (2, "2xx"), (3, "3xx"), (4, "4xx"), (5, "5xx")] {
            if meter.class(digit) > 0 {
                family.sample(&[("route", route), ("method", method), ("status", class)], meter.class(digit));
            }
        }
    }
    let help = "Total time until responses began.";
    let mut family = text.family("toolhub_http_request_seconds_total", MetricType::Counter, help);
    for (route, method, meter) in &routes {
        family.sample(&[("route", route), ("method", method)], meter.total_seconds());
    }
    let mut count = |name, help, value: u64| text.single(name, MetricType::Counter, help, value);
    count("toolhub_connections_accepted_total", "Accepted connections.", listener.accepted.load(Relaxed));
    count(
        "toolhub_connections_refused_total",
        "Connections closed because of the connection limit.",
        listener.refused.load(Relaxed),
    );
    let help = "Connections closed to make room for new ones.";
    count("toolhub_connections_displaced_total", help, listener.displaced.load(Relaxed));
    let help = "Event streams ended to make room for newer ones.";
    count("toolhub_streams_displaced_total", help, listener.ended_streams.load(Relaxed));
    count("toolhub_connections_cut_total", "Connections aborted by a timeout.", listener.timed_out.load(Relaxed));
    text.single("toolhub_connections", MetricType::Gauge, "Open connections.", listener.open.load(Relaxed));
}

fn process(text: &mut PrometheusText, sources: &Sources<'_>) {
    let mut info = text.family("toolhub_build_info", MetricType::Gauge, "Version information.");
    let BuildInfo { version, revision, rustc } = sources.build;
    info.sample(&[("version", version), ("revision", revision), ("rustc", rustc)], 1);
    let uptime = sources.started.elapsed().as_secs_f64();
    text.single("toolhub_uptime_seconds", MetricType::Gauge, "Time since the server started.", uptime);
    if let Some(bytes) = resident_bytes() {
        text.single("process_resident_memory_bytes", MetricType::Gauge, "Resident memory of the process.", bytes);
    }
}

/// Resident memory of this process, on systems with `/proc`.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

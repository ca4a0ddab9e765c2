//! The page of `/metrics`: what the hub, the server and the process can tell in numbers.
//!
//! In: the hub's own counts and the server's. Out: text. Names of tools and routes are labels; ids of threads and calls
//! never are.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use tokio::time::Instant;
use toolhub_agent::AgentService;
use toolhub_core::{CancellationToken, StatusScope, ToolHub, ToolStats, status::ToolStatus};

use super::Meters;
use super::prometheus_text::{MetricType, PrometheusText};
use crate::settings::Build;

/// How long the statuses of tools are waited for.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// The bounds OpenTelemetry asks for: from 10 ms, doubled each time.
const CALL_BOUNDS: [f64; 14] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/// A store takes microseconds when it is well.
const STORE_BOUNDS: [f64; 10] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];

/// People take their time.
const APPROVAL_BOUNDS: [f64; 8] = [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0];

const STATUS_LABELS: [(ToolStatus, &str); 4] = [
    (ToolStatus::Available, "available"),
    (ToolStatus::Unavailable, "unavailable"),
    (ToolStatus::Failed, "failed"),
    (ToolStatus::Maintenance, "maintenance"),
];

/// Where the numbers come from.
pub(crate) struct Sources<'a> {
    /// The hub, with its own counts.
    pub(crate) hub: &'a ToolHub,
    /// The agents, with theirs.
    pub(crate) agents: &'a AgentService,
    /// What the server counts.
    pub(crate) meters: &'a Meters,
    /// What was built.
    pub(crate) build: &'a Build,
    /// When the server began.
    pub(crate) started: Instant,
    /// Cancelled when the server stops; a count of states ends then.
    pub(crate) stopping: &'a CancellationToken,
}

/// All numbers, now.
pub(crate) async fn render(from: &Sources<'_>) -> String {
    let mut text = PrometheusText::default();
    let stats = from.hub.stats();
    calls(&mut text, from, &stats);
    agents(&mut text, from);
    statuses(&mut text, from).await;
    changes(&mut text, from);
    hub(&mut text, from);
    approvals(&mut text, from);
    store(&mut text, from);
    states(&mut text, from).await;
    server(&mut text, from);
    process(&mut text, from);
    text.finish()
}

fn calls(text: &mut PrometheusText, from: &Sources<'_>, stats: &[ToolStats]) {
    let help = "Calls that ended, by their outcome: `success` or the name of the error.";
    let mut family = text.family("toolhub_tool_calls_total", MetricType::Counter, help);
    for tool in stats {
        let name = tool.tool.as_str();
        let kind = from.hub.get(name).map(|tool| tool.definition.kind.to_string()).unwrap_or_default();
        family.sample(&[("tool", name), ("kind", &kind), ("outcome", "success")], tool.succeeded.count);
        for (error, many) in &tool.errors {
            family.sample(&[("tool", name), ("kind", &kind), ("outcome", error)], many);
        }
    }
    let help =
        "How long calls took that reached their tool; `error_type` is the name of the error, empty for a success.";
    let mut family = text.family("gen_ai_execute_tool_duration_seconds", MetricType::Histogram, help);
    for tool in stats {
        let ends = [("", &tool.succeeded)].into_iter().chain(tool.failed.iter().map(|(error, took)| (*error, took)));
        for (error, took) in ends {
            let labels =
                [("gen_ai_tool_name", tool.tool.as_str()), ("gen_ai_tool_type", "function"), ("error_type", error)];
            family.latency_histogram(&labels, &CALL_BOUNDS, took);
        }
    }
    let mut each = |name, sort, help, of: fn(&ToolStats) -> u64| {
        let mut family = text.family(name, sort, help);
        for tool in stats {
            family.sample(&[("tool", tool.tool.as_str())], of(tool));
        }
    };
    let retries = "Attempts that were made again after a failure.";
    each("toolhub_tool_retries_total", MetricType::Counter, retries, |tool| tool.retries);
    each("toolhub_rate_limited_total", MetricType::Counter, "Calls a rate limit held back.", |tool| tool.rate_limited);
    each("toolhub_tool_in_flight", MetricType::Gauge, "Calls that are with the tool.", |tool| tool.in_flight);
    each("toolhub_tool_stuck", MetricType::Gauge, "Calls that run on though nobody waits.", |tool| tool.stuck as u64);
}

fn agents(text: &mut PrometheusText, from: &Sources<'_>) {
    let stats = from.agents.meters().snapshot();
    let help = "How long runs of agents took, waits included; `error_type` is empty for a run that completed.";
    let mut family = text.family("gen_ai_invoke_agent_duration_seconds", MetricType::Histogram, help);
    for ((agent, error), spread) in &stats.runs {
        let labels = [("gen_ai_agent_name", agent.as_str()), ("error_type", error.as_str())];
        family.histogram(&labels, &toolhub_agent::RUN_SECONDS_BUCKETS, spread);
    }
    let help = "How long models took to answer, with all that was tried again.";
    let mut family = text.family("gen_ai_client_operation_duration_seconds", MetricType::Histogram, help);
    for ((model, error), spread) in &stats.requests {
        let labels = [
            ("gen_ai_operation_name", "chat"),
            ("gen_ai_request_model", model.as_str()),
            ("error_type", error.as_str()),
        ];
        family.histogram(&labels, &toolhub_agent::REQUEST_SECONDS_BUCKETS, spread);
    }
    let help = "How many tokens models read and wrote, answer by answer.";
    let mut family = text.family("gen_ai_client_token_usage", MetricType::Histogram, help);
    for ((model, sort), spread) in &stats.tokens {
        let labels = [("gen_ai_request_model", model.as_str()), ("gen_ai_token_type", *sort)];
        family.histogram(&labels, &toolhub_agent::TOKEN_BUCKETS, spread);
    }
}

async fn statuses(text: &mut PrometheusText, from: &Sources<'_>) {
    // A store that does not answer must not hide the other numbers.
    let asked = tokio::time::timeout(STATUS_TIMEOUT, from.hub.tool_statuses(StatusScope::Shared));
    let Ok(Ok(tools)) = asked.await else { return };
    let mut family =
        text.family("toolhub_tool_status", MetricType::Gauge, "1 for the status a tool has for everybody.");
    for tool in tools {
        for (status, word) in STATUS_LABELS {
            let labels = [("tool", tool.tool_name.as_str()), ("status", word)];
            family.sample(&labels, u8::from(tool.status == status));
        }
    }
}

fn changes(text: &mut PrometheusText, from: &Sources<'_>) {
    let word = |status| STATUS_LABELS.iter().find(|(known, _)| *known == status).map_or("", |(_, word)| word);
    let help = "How often the status of a tool changed, for everybody or in one thread.";
    let mut family = text.family("toolhub_tool_status_transitions_total", MetricType::Counter, help);
    for change in from.hub.status_changes() {
        let labels = [("tool", change.tool.as_str()), ("from", word(change.from)), ("to", word(change.to))];
        family.sample(&labels, change.count);
    }
}

fn approvals(text: &mut PrometheusText, from: &Sources<'_>) {
    let stats = from.hub.approval_stats();
    text.single("toolhub_approvals_pending", MetricType::Gauge, "Questions that wait for a person.", stats.pending);
    let help = "How long it took until a person answered.";
    text.family("toolhub_approval_wait_seconds", MetricType::Histogram, help).latency_histogram(
        &[],
        &APPROVAL_BOUNDS,
        &stats.wait,
    );
}

fn store(text: &mut PrometheusText, from: &Sources<'_>) {
    let help = "How long the store took, whatever it answered.";
    let mut family = text.family("toolhub_store_operation_seconds", MetricType::Histogram, help);
    for stats in from.hub.store_stats() {
        family.latency_histogram(&[("backend", stats.backend), ("op", stats.operation)], &STORE_BOUNDS, &stats.latency);
    }
}

async fn states(text: &mut PrometheusText, from: &Sources<'_>) {
    let help = "States that were kept when they were counted last.";
    let mut family = text.family("toolhub_state_entries", MetricType::Gauge, help);
    for (kind, many) in from.meters.state_counter.counts(from.hub, from.stopping).await {
        family.sample(&[("type", kind.as_str())], many);
    }
}

fn hub(text: &mut PrometheusText, from: &Sources<'_>) {
    let hub = from.hub;
    text.single("toolhub_queue_depth", MetricType::Gauge, "Calls that wait for their turn.", hub.queued_calls());
    text.single("toolhub_calls_running", MetricType::Gauge, "Calls on tasks of their own.", hub.running_calls());
    text.single("toolhub_tools", MetricType::Gauge, "Tools that are registered.", hub.tools().len());
    let help = "Threads that were used here within about ten minutes.";
    text.single("toolhub_threads_active", MetricType::Gauge, help, hub.active_threads());
    let help = "Events a listener, or the store that keeps them, was too slow for.";
    text.single("toolhub_events_dropped_total", MetricType::Counter, help, hub.dropped_events());
    let journal = hub.journal_stats();
    let help = "Records of read-only calls that were written.";
    text.single("toolhub_journal_written_total", MetricType::Counter, help, journal.written);
    text.single("toolhub_journal_dropped_total", MetricType::Counter, "Records that were given up.", journal.dropped);
}

fn server(text: &mut PrometheusText, from: &Sources<'_>) {
    let (routes, listener) = (from.meters.routes(), &from.meters.listener);
    let mut family = text.family("toolhub_http_requests_total", MetricType::Counter, "Requests that were answered.");
    for (route, method, meter) in &routes {
        for (digit, class) in [(1, "1xx"), (2, "2xx"), (3, "3xx"), (4, "4xx"), (5, "5xx")] {
            if meter.class(digit) > 0 {
                family.sample(&[("route", route), ("method", method), ("status", class)], meter.class(digit));
            }
        }
    }
    let help = "How long it took until answers began, all together.";
    let mut family = text.family("toolhub_http_request_seconds_total", MetricType::Counter, help);
    for (route, method, meter) in &routes {
        family.sample(&[("route", route), ("method", method)], meter.total_seconds());
    }
    let mut count = |name, help, value: u64| text.single(name, MetricType::Counter, help, value);
    count("toolhub_connections_accepted_total", "Connections that were let in.", listener.accepted.load(Relaxed));
    count("toolhub_connections_refused_total", "Connections there was no place for.", listener.refused.load(Relaxed));
    let help = "Connections that were closed to let others in.";
    count("toolhub_connections_displaced_total", help, listener.evicted.load(Relaxed));
    count("toolhub_connections_cut_total", "Connections that were too slow.", listener.timed_out.load(Relaxed));
    text.single("toolhub_connections", MetricType::Gauge, "Connections that are open.", listener.open.load(Relaxed));
}

fn process(text: &mut PrometheusText, from: &Sources<'_>) {
    let mut info = text.family("toolhub_build_info", MetricType::Gauge, "What was built.");
    let Build { version, revision, rustc } = from.build;
    info.sample(&[("version", version), ("revision", revision), ("rustc", rustc)], 1);
    let uptime = from.started.elapsed().as_secs_f64();
    text.single("toolhub_uptime_seconds", MetricType::Gauge, "How long the server has been there.", uptime);
    if let Some(bytes) = resident_bytes() {
        text.single("process_resident_memory_bytes", MetricType::Gauge, "Memory the process takes.", bytes);
    }
}

/// Memory of this process, where the system says so in a file.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

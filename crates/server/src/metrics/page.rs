//! The page of `/metrics`: what the hub, the server and the process can tell in numbers.
//!
//! In: the hub's own counts and the server's. Out: text. Names of tools and routes are labels; ids of threads and calls
//! never are.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use toolhub_core::{ErrorKind, ToolStats, View, status::ToolStatus};

use super::text::{Sort, Text};
use crate::app::App;

/// The bounds OpenTelemetry asks for: from 10 ms, doubled each time.
const BOUNDS: [f64; 14] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

const STATUSES: [(ToolStatus, &str); 4] = [
    (ToolStatus::Available, "available"),
    (ToolStatus::Unavailable, "unavailable"),
    (ToolStatus::Failed, "failed"),
    (ToolStatus::Maintenance, "maintenance"),
];

/// All numbers, now.
pub(crate) async fn page(app: &App) -> String {
    let mut text = Text::default();
    let stats = app.hub().stats();
    calls(&mut text, app, &stats);
    statuses(&mut text, app).await;
    hub(&mut text, app);
    server(&mut text, app);
    process(&mut text, app);
    text.finish()
}

fn calls(text: &mut Text, app: &App, stats: &[ToolStats]) {
    let help = "Calls that ended, by their outcome: `success` or the name of the error.";
    let mut family = text.family("toolhub_tool_calls_total", Sort::Counter, help);
    for tool in stats {
        let name = tool.tool.as_str();
        let kind = app.hub().get(name).map(|tool| tool.definition.kind.to_string()).unwrap_or_default();
        let ran = |error: &str| ErrorKind::TABLE.iter().any(|row| row.name == error && row.http == 200);
        let failed: u64 = tool.errors.iter().filter(|(error, _)| ran(error)).map(|(_, many)| many).sum();
        let succeeded = tool.calls.saturating_sub(failed);
        family.put(&[("tool", name), ("kind", &kind), ("outcome", "success")], succeeded);
        for (error, many) in &tool.errors {
            family.put(&[("tool", name), ("kind", &kind), ("outcome", error)], many);
        }
    }
    let help = "How long calls took that reached their tool.";
    let mut family = text.family("gen_ai_execute_tool_duration_seconds", Sort::Histogram, help);
    let bounds = BOUNDS.map(Duration::from_secs_f64);
    for tool in stats {
        let labels = [("gen_ai_tool_name", tool.tool.as_str()), ("gen_ai_tool_type", "function")];
        for (bound, many) in BOUNDS.iter().zip(tool.latency.within(&bounds)) {
            family.part("_bucket", &[labels[0], labels[1], ("le", &bound.to_string())], many);
        }
        family.part("_bucket", &[labels[0], labels[1], ("le", "+Inf")], tool.latency.count);
        let sum = tool.latency.mean.as_secs_f64() * tool.latency.count as f64;
        family.part("_sum", &labels, sum);
        family.part("_count", &labels, tool.latency.count);
    }
    let mut each = |name, sort, help, of: fn(&ToolStats) -> u64| {
        let mut family = text.family(name, sort, help);
        for tool in stats {
            family.put(&[("tool", tool.tool.as_str())], of(tool));
        }
    };
    let retries = "Attempts that were made again after a failure.";
    each("toolhub_tool_retries_total", Sort::Counter, retries, |tool| tool.retries);
    each("toolhub_rate_limited_total", Sort::Counter, "Calls a rate limit held back.", |tool| tool.rate_limited);
    each("toolhub_tool_in_flight", Sort::Gauge, "Calls that are with the tool.", |tool| tool.in_flight);
    each("toolhub_tool_stuck", Sort::Gauge, "Calls that run on though nobody waits.", |tool| tool.stuck as u64);
}

async fn statuses(text: &mut Text, app: &App) {
    // A store that does not answer must not hide the other numbers.
    let Ok(tools) = app.hub().tool_statuses(View::Shared).await else { return };
    let mut family = text.family("toolhub_tool_status", Sort::Gauge, "1 for the status a tool has for everybody.");
    for tool in tools {
        for (status, word) in STATUSES {
            let labels = [("tool", tool.tool_name.as_str()), ("status", word)];
            family.put(&labels, u8::from(tool.status == status));
        }
    }
}

fn hub(text: &mut Text, app: &App) {
    let hub = app.hub();
    text.one("toolhub_queue_depth", Sort::Gauge, "Calls that wait for their turn.", hub.queued());
    text.one("toolhub_calls_running", Sort::Gauge, "Calls on tasks of their own.", hub.running());
    text.one("toolhub_tools", Sort::Gauge, "Tools that are registered.", hub.tools().len());
    let journal = hub.journal_stats();
    let help = "Records of read-only calls that were written.";
    text.one("toolhub_journal_written_total", Sort::Counter, help, journal.written);
    text.one("toolhub_journal_dropped_total", Sort::Counter, "Records that were given up.", journal.dropped);
}

fn server(text: &mut Text, app: &App) {
    let (routes, doors) = (app.meters().routes(), &app.meters().doors);
    let mut family = text.family("toolhub_http_requests_total", Sort::Counter, "Requests that were answered.");
    for (route, method, meter) in &routes {
        for (digit, class) in [(1, "1xx"), (2, "2xx"), (3, "3xx"), (4, "4xx"), (5, "5xx")] {
            if meter.class(digit) > 0 {
                family.put(&[("route", route), ("method", method), ("status", class)], meter.class(digit));
            }
        }
    }
    let help = "How long it took until answers began, all together.";
    let mut family = text.family("toolhub_http_request_seconds_total", Sort::Counter, help);
    for (route, method, meter) in &routes {
        family.put(&[("route", route), ("method", method)], meter.seconds());
    }
    let mut count = |name, help, value: u64| text.one(name, Sort::Counter, help, value);
    count("toolhub_connections_accepted_total", "Connections that were let in.", doors.accepted.load(Relaxed));
    count("toolhub_connections_refused_total", "Connections there was no place for.", doors.refused.load(Relaxed));
    let help = "Connections that were closed to let others in.";
    count("toolhub_connections_displaced_total", help, doors.made_room.load(Relaxed));
    count("toolhub_connections_cut_total", "Connections that were too slow.", doors.cut.load(Relaxed));
    text.one("toolhub_connections", Sort::Gauge, "Connections that are open.", doors.open.load(Relaxed));
}

fn process(text: &mut Text, app: &App) {
    let mut info = text.family("toolhub_build_info", Sort::Gauge, "What was built.");
    info.put(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    let uptime = app.begun().elapsed().as_secs_f64();
    text.one("toolhub_uptime_seconds", Sort::Gauge, "How long the server has been there.", uptime);
    if let Some(bytes) = resident() {
        text.one("process_resident_memory_bytes", Sort::Gauge, "Memory the process takes.", bytes);
    }
}

/// Memory of this process, where the system says so in a file.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

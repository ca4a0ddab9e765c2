//! The part of the metrics page about a shared store: its servers, notifications, and the nodes that use it.
//!
//! In: whether the store answers and accepts writes, and what the hub knows of its servers and nodes without a request. Out: samples.

use toolhub_core::{ToolHub, backend::StoreServer};

use super::prometheus_text::{MetricType, PrometheusText};

/// Writes the samples. The servers of a store without any, such as a file, have none.
pub(super) fn write(text: &mut PrometheusText, hub: &ToolHub, is_store_up: bool) {
    let help = "Whether the store answers and accepts writes: 1 or 0. Without a shared store, only what needs no record goes on.";
    text.single("toolhub_store_up", MetricType::Gauge, help, u8::from(is_store_up));
    nodes(text, hub);
    let Some(report) = hub.store_servers() else { return };
    servers(text, &report.servers);
    let help = "Time of the store's servers minus that of this machine's clock, as of the last look.";
    text.single("toolhub_store_clock_difference_seconds", MetricType::Gauge, help, report.clock_difference);
    let help =
        "Notifications of changes that the store had published and this node had not received, as of the last look.";
    text.single("toolhub_store_notification_lag", MetricType::Gauge, help, report.notification_lag);
    let help = "How often notifications of changes were lost, so that this node read again.";
    text.single("toolhub_store_notification_gaps_total", MetricType::Counter, help, report.notification_gaps);
}

fn nodes(text: &mut PrometheusText, hub: &ToolHub) {
    let help = "Nodes that share the store and are alive as this node sees it, itself included.";
    text.single("toolhub_nodes_alive", MetricType::Gauge, help, hub.alive_nodes());
    let help = "Whether this node holds the maintenance lease: 1 or 0. One of the nodes does.";
    text.single("toolhub_maintenance_lease", MetricType::Gauge, help, u8::from(hub.is_maintainer()));
}

fn servers(text: &mut PrometheusText, servers: &[StoreServer]) {
    let help = "1 for each server of the store, with its version, role and persistence as of the last look.";
    let mut family = text.family("toolhub_store_server_info", MetricType::Gauge, help);
    for server in servers {
        let StoreServer { address, version, persistence, .. } = server;
        let role = server.role();
        family.sample(&[("server", address), ("version", version), ("role", role), ("persistence", persistence)], 1);
    }
    let mut per_server = |name, help, value_of: fn(&StoreServer) -> Option<u64>| {
        let mut family = text.family(name, MetricType::Gauge, help);
        for server in servers {
            if let Some(value) = value_of(server) {
                family.sample(&[("server", &server.address)], value);
            }
        }
    };
    per_server("toolhub_store_server_replicas", "Replicas that are connected to the server.", |server| {
        Some(server.replicas)
    });
    per_server("toolhub_store_server_memory_bytes", "Memory that the server uses.", |server| Some(server.memory));
    let help = "Memory that the server may use; none without a limit.";
    per_server("toolhub_store_server_memory_limit_bytes", help, |server| server.memory_limit);
}

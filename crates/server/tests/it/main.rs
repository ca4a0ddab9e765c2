//! Integration tests of the server, through its router and through sockets.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it stands")]

mod agents_messages;
mod agents_runs;
mod api_agents;
mod api_approvals;
mod api_batches;
mod api_calls;
mod api_events;
mod api_idempotency;
mod api_mcp_servers;
mod api_metrics;
mod api_openapi;
mod api_refusals;
mod api_tools;
mod api_validation;
mod listener_audit;
mod listener_connections;
mod listener_drain;
mod listener_guard;
mod listener_keys;
mod listener_limits;
mod listener_routes;
mod listener_secrets;
mod listener_standby;
mod listener_tenants;
mod state_artifacts;
mod state_entries;
mod state_pages;
mod state_system;
mod state_threads;
mod state_tools;
mod support_agents;
mod support_api;
mod support_http2;
mod support_listener;
mod support_state;

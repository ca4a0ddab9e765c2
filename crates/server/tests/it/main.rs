//! The behaviour of the server, through its router and its door.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it stands")]

mod agents_messages;
mod agents_runs;
mod api_agents;
mod api_approvals;
mod api_batches;
mod api_calls;
mod api_document;
mod api_events;
mod api_metrics;
mod api_repeats;
mod api_strict;
mod api_tools;
mod door_audit;
mod door_drain;
mod door_guard;
mod door_keys;
mod door_limits;
mod door_routes;
mod door_secrets;
mod door_tenants;
mod state_artifacts;
mod state_entries;
mod state_pages;
mod state_system;
mod state_threads;
mod state_tools;
mod support_agents;
mod support_api;
mod support_door;
mod support_state;

//! The behaviour of the server, through its router and its door.

mod door_drain;
mod door_guard;
mod door_limits;
mod door_routes;
mod state_artifacts;
mod state_entries;
mod state_pages;
mod state_system;
mod state_threads;
mod state_tools;
mod support_door;
mod support_state;

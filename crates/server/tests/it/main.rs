//! The behaviour of the server, through its router and its door.

mod state_artifacts;
mod state_entries;
mod state_pages;
mod state_system;
mod state_threads;
mod state_tools;
mod support_state;

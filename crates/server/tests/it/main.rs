//! The behaviour of the server, through its router and its door.

mod api_agents;
mod api_calls;
mod api_tools;
mod support_api;

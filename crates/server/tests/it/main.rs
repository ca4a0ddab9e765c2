//! The behaviour of the server, through its router and its door.

mod door_drain;
mod door_guard;
mod door_limits;
mod door_routes;
mod support_door;

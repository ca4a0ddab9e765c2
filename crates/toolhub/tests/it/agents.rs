//! Agents: a model is offered the tools that work, its calls are made, and the conversation is kept.

mod actor;
mod bounds;
mod handed_out;
mod lives;
mod loops;
mod threads;

pub(crate) use actor::{Actor, asks, says};

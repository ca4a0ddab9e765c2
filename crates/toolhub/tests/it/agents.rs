//! Agents: a model is offered the tools that work, its calls are made, and the conversation is kept.

mod actor;
mod bounds;
mod ends;
mod handed_out;
mod lives;
mod loops;
mod threads;
mod trouble;

pub(crate) use actor::{Actor, asks, says};

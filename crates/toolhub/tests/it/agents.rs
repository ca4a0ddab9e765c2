//! Agents: a model is offered the tools that work, its calls are made, and the conversation is kept.

mod bounds;
mod external_calls;
mod model_loop;
mod restarts;
mod scripted_model;
mod store_failures;
mod termination;
mod threads;

pub(crate) use scripted_model::{ScriptedModel, calls_reply, text_reply};

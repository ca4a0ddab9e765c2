//! Agents: a model is offered the available tools, its calls are executed, and the conversation is stored.

mod bounds;
mod external_calls;
mod model_loop;
mod nodes;
mod restarts;
mod scripted_model;
mod store_failures;
mod termination;
mod threads;

pub(crate) use scripted_model::{ScriptedModel, calls_reply, text_reply};

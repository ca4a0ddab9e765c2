//! The model loop: agents that offer a model the tools that work now, and keep their threads over turns and restarts.
//!
//! Use the crate `toolhub`; this one is what its feature `agent` is made of.
#![forbid(unsafe_code)]

mod message;
mod model;

pub use message::{AskedCall, CallResult, Message, Picture};
pub use model::{
    Anthropic, Hear, Heard, Model, ModelError, ModelFault, ModelSettings, OpenAi, Prompt, Provider, Reply, Secret,
    SettingsError, Stop, UnknownProvider, Usage, connect,
};

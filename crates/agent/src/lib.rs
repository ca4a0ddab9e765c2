//! The model loop: agents that offer a model the tools that work now, and keep their threads over turns and restarts.
//!
//! Use the crate `toolhub`; this one is what its feature `agent` is made of.
#![forbid(unsafe_code)]

mod message;
mod model;
#[cfg(feature = "stub")]
mod script;
#[cfg(feature = "stub")]
mod stub;

pub use message::{AskedCall, CallResult, Message, Picture};
pub use model::{
    Anthropic, Hear, Heard, Model, ModelError, ModelFault, ModelSettings, OpenAi, Prompt, Provider, Reply, Secret,
    SettingsError, Stop, UnknownProvider, Usage, connect,
};
#[cfg(feature = "stub")]
pub use script::{Conversation, Fault, Script, ScriptError, ScriptProblem, Scripted};
#[cfg(feature = "stub")]
pub use stub::Stub;

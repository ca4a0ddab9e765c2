//! Words, traits and the rooms a tool call passes: registry, pipeline, threads, state, events.
//!
//! Use the crate `toolhub`; this one is what it is made of. Here nothing opens a socket or a file: executors and
//! backends are handed in.
#![forbid(unsafe_code)]

mod artifact;
pub mod backend;
#[allow(dead_code, reason = "wired in the next commit")]
mod batch_plan;
mod blocking;
mod call;
pub mod clock;
mod context;
mod debug;
mod digest;
mod engine;
mod error;
pub mod events;
mod executor;
pub mod export;
#[allow(dead_code, unreachable_pub, reason = "wired in the next commit")]
mod guard;
mod handler;
mod hub;
pub mod ids;
mod journal;
#[allow(dead_code, unused_imports, reason = "wired in the next commit")]
mod kept;
mod millis;
mod pipeline;
mod policy;
mod registry;
#[allow(dead_code, reason = "wired in the next commit")]
mod scheduler;
pub mod schema;
mod services;
mod sharded;
mod state;
pub mod status;
mod statuses;
mod suggest;
#[cfg(feature = "testing")]
pub mod testing;
mod threads;
mod tool;

pub use artifact::Artifact;
pub use call::{Content, Effect, Outcome, Progress, Status};
pub use context::CallContext;
pub use error::{CallError, Counts, Detail, ErrorKind, ErrorRow, FailureScope, ToolError};
pub use executor::{BoxFuture, Executor, Job, Reply};
pub use futures_core::Stream;
pub use handler::{
    Arguments, BlockingHandler, FromCall, Handler, Instance, NoArguments, Parameters, Shared, StatefulTool, blocking,
    instance, stateful, tool,
};
pub use hub::{
    BuildError, CallRequest, Explanation, HubBuilder, Offer, Restored, Running, ToolHub, ToolStatusInfo, View,
};
pub use journal::CallRecord;
pub use policy::{Limits, Policy};
pub use registry::{Filter, Registry, RegistryError, Tool, ToolBuilder, Tools};
pub use state::{State, ToolState};
pub use tokio_util::sync::CancellationToken;
pub use tool::{Annotations, Definition, DependsOn, Group, Kind, Metadata, NameError, Origin, ToolName};

//! Words, traits and the rooms a tool call passes: registry, pipeline, threads, state, events.
//!
//! Use the crate `toolhub`; this one is what it is made of. Here nothing opens a socket or a file: executors and
//! backends are handed in.
#![forbid(unsafe_code)]

mod approvals;
mod artifact;
pub mod backend;
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
mod guard;
mod handler;
mod held;
mod hooks;
mod hub;
pub mod ids;
mod journal;
mod kept;
mod millis;
mod monitor;
mod pipeline;
mod policy;
mod registry;
mod scheduler;
pub mod schema;
mod services;
mod sharded;
mod state;
pub mod status;
mod statuses;
mod step;
pub mod suggest;
#[cfg(feature = "testing")]
pub mod testing;
mod text_schema;
mod threads;
mod tool;
mod trace;

pub use approvals::{Answer, Approval, ApprovalError, ApprovalOutcome, ApprovalState, Covers, Grant};
pub use artifact::Artifact;
pub use call::{Acknowledged, Content, Effect, Outcome, Progress, Reached, ReportError, Status};
pub use context::{CallContext, HeldSlot};
pub use error::{CallError, Counts, Detail, ErrorKind, ErrorRow, FailureScope, ToolError};
pub use executor::{BoxFuture, Executor, Job, Reply};
pub use futures_core::Stream;
pub use guard::RunLimits;
pub use handler::{
    Arguments, BlockingHandler, FromCall, Handler, Instance, JsonReply, NoArguments, Parameters, Shared,
    SharedInstance, StatefulTool, blocking, dynamic, dynamic_stateful, instance, legacy_stateful, shared_instance,
    stateful, tool,
};
pub use hooks::{After, Before, Hook, HookedCall};
pub use hub::{
    BatchRequest, BuildError, CallRequest, Cancel, Change, Changed, Explanation, HubBuilder, Offer, RateLeft, Restored,
    Running, ThreadError, ToolHub, ToolStatusInfo, View,
};
pub use journal::{CallPage, CallQuery, CallQueryError, CallRecord, JournalStats, RecentStats};
pub use monitor::{ApprovalStats, Latency, StatusChanges, StoreStats, ToolStats};
pub use policy::{
    AnnotationMatch, ArgumentMatch, Decision, Glob, Limits, OnExcess, Policy, PolicyError, RateLimit, RateScope, Retry,
    Rule, RuleError,
};
pub use registry::{Filter, Registry, RegistryError, Tool, ToolBuilder, Tools, Toolset};
pub use state::{
    BusinessStateConfig, ConflictResolution, ConnectionState, ConnectionStateConfig, ContextFilter, ContextId,
    ContextInfo, ContextPage, ContextState, FormatError, Happened, HistoryEntry, JsonState, KindInfo, ManagerType,
    PersistenceFormat, SessionState, State, StateChange, StateChanges, StateCleanup, StateCondition, StateEntry,
    StateError, StateKind, StateManager, StateManagerConfig, StateStats, StateVersion, ToolState,
};
pub use step::Waiting;
pub(crate) use text_schema::text_schema;
pub use threads::{InstanceInfo, ThreadContext, ThreadInfo, ThreadPage, Threads};
pub use tokio_util::sync::CancellationToken;
pub use tool::{Annotations, Definition, DependsOn, Group, Kind, Metadata, NameError, Origin, ToolName};
pub use trace::{TraceContext, TraceId};

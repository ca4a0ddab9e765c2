//! The core of Toolhub: registry, pipeline, scheduler, approvals, journal, state, threads, statuses, events and the hub.
//!
//! Use the crate `toolhub`, which re-exports this one. Nothing here opens a socket or a file: executors and backends are passed in.
#![forbid(unsafe_code)]

pub mod alerts;
mod approvals;
mod argument_memory;
mod artifact;
mod batched_records;
mod blocking;
mod call;
mod debug;
mod engine;
pub mod events;
mod evidence;
mod execution;
mod extensions;
mod handler;
mod hooks;
mod hub;
mod journal;
mod link;
mod monitor;
mod nodes;
mod offers;
#[doc(hidden)]
pub mod offload;
mod pipeline;
mod reentrancy;
mod registration;
mod registry;
mod requests;
mod result_cache;
mod runaway;
mod scheduler;
mod sealing;
mod services;
mod source_lists;
mod statuses;
mod step;
#[doc(hidden)]
pub mod tasks;
#[cfg(feature = "testing")]
pub mod testing;
mod threads;

pub use approvals::{
    Answer, Approval, ApprovalError, ApprovalOutcome, ApprovalReservation, ApprovalState, Grant, GrantScope,
};
pub use artifact::Artifact;
pub use batched_records::{JournalStats, ReadOnlyCalls};
pub use call::{ApprovalReuse, CallReceipt, InputError, InputHandler, InputKind, InputRequest, ReportError};
pub use execution::{BoxFuture, CallContext, Executor, HeldSlot, INPUT_TIMEOUT, Job, Reply, Tool};
pub use futures_core::Stream;
pub use handler::{
    Arguments, BlockingHandler, FromCall, Handler, Instance, JsonReply, JsonState, LegacyResult, NoArguments,
    Parameters, Shared, SharedInstance, SharedInstanceGuard, State, StatefulTool, blocking, dynamic, dynamic_stateful,
    instance, legacy_stateful, shared_instance, stateful, tool,
};
pub use hooks::{AfterDecision, BeforeDecision, Hook, HookedCall};
pub use hub::{
    ActiveAlert, AlertTargetError, AlertTargetInfo, BatchHandle, BatchRequest, BuildError, CallForecast, CallHandle,
    CallRequest, Cancellation, ChangeSummary, DecidingRule, DefinitionApproval, DefinitionApprovalError,
    DefinitionChange, DefinitionDifference, DeliveryPage, DependencyStatus, DuplicateSource, Explanation,
    ForecastError, ForecastResult, HubBuilder, HubChange, InstanceGuard, NewerRecords, NodeRequestError, Offer,
    OfferOptions, RateQuota, ResourceSubscription, SnapshotRestore, SourceConnection, SourceHandle, SourceInfo,
    SourceStatus, SourceTool, SourceToolState, StatusDetails, StatusScope, SubscribeError, ThreadContext, ThreadError,
    Threads, TimelineApproval, TimelineStage, TimelineStep, ToolHub, ToolSource, ToolStatusDetails, ToolStatusInfo,
};
pub use journal::{CallPage, CallQuery, CallQueryError, CallRecord, RecentStats, index_terms};
pub use monitor::{ApprovalStats, CallSample, CallSampler, PollWatch, Refusal, StatusChanges, StoreSize, ToolStats};
#[doc(hidden)]
pub use nodes::announced_node_timeout;
pub use nodes::{NewerNode, NodeInfo, NodeLayouts, NodeState, NodeStatus};
pub use offers::{OfferWatch, SharedOffer};
pub use pipeline::CacheForecast;
pub use registration::InstanceGroup;
pub use registry::{Registry, RegistryError, ToolBuilder, ToolFilter, Tools, Toolset};
pub use runaway::RunLimits;
#[doc(hidden)]
pub use sealing::{Sealer, UnsealError};
pub use source_lists::{
    CompletionTarget, HubLists, HubListsWatch, ListRevisions, ReadCall, SourceLists, SourceReaders,
};
pub use step::WaitReason;
pub use threads::{InstanceInfo, ThreadInfo, ThreadPage, ThreadPosition};
pub use tokio_util::sync::CancellationToken;
pub use toolhub_state::{
    COOKIE_STATE_PREFIX, ConnectionState, ContextFilter, ContextId, ContextInfo, ContextPage, ContextState,
    HistoryCursor, HistoryEntry, HistoryEvent, KindInfo, SessionState, StateChange, StateChanges, StateCleanup,
    StateCondition, StateEntry, StateError, StateKind, StateManager, StateStats, StateTag, StateVersion, ToolState,
};

pub use toolhub_schema::{draft, export, schema, suggest};
#[doc(hidden)]
pub use toolhub_storage::latency::{HistogramSnapshot, LatencyRecorder};
pub use toolhub_storage::{backend::StoreStats, clock, latency::Latency};
pub use toolhub_types::{
    content::{Content, EmbeddedResource, ResourceContents, ResourceLink},
    effect::Effect,
    error::{CallError, CountsAsFailure, Detail, ErrorKind, ErrorRow, FailureScope, ToolError},
    ids, millis,
    outcome::{Outcome, Status, WriteDurability},
    policy::{
        AnnotationMatch, ArgumentMatch, Decision, Glob, Limits, OnExcess, Policy, PolicyError, RateLimit, RateScope,
        Retry, Rule, RuleError,
    },
    progress::{CallUpdate, LogLine, Progress},
    resource::{Prompt, PromptArgument, Resource, ResourceAnnotations, ResourceTemplate},
    state_config::{
        BusinessStateConfig, ConflictResolution, ConnectionStateConfig, FormatError, ManagerType, PersistenceFormat,
        StateManagerConfig,
    },
    status,
    store_role::StoreRole,
    timing::{AttemptError, AttemptTiming, CallTiming},
    tool::{Annotations, Definition, DependencyGroup, DependsOn, Kind, Metadata, NameError, Origin, ToolName},
    trace::{TraceContext, TraceId},
    units,
};
#[doc(hidden)]
pub use toolhub_types::{count_by_key, digest, hidden_chars, json, page_budget, redact};

/// The storage trait and its request types.
pub mod backend {
    pub use toolhub_storage::backend::{
        Backend, Batch, Change, Cursor, Durability, Expect, LossReport, Memory, Page, Partition, PartitionKind, Row,
        RowKey, RowVersion, Scan, Scope, ServersReport, StoreError, StoreServer, Table, Terms, WatchEvent, Watcher,
        Write, decode, encode, read_all, rewatch,
    };
    pub use toolhub_storage::seal::SealKey;
}

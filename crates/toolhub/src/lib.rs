//! Runs the tool calls of AI agents: validation, approvals, limits, state, crash recovery.
//!
//! Define tools as plain functions, register them with a [`ToolHub`], and call them by name. The hub validates the arguments,
//! runs the call, stores the tool's state, and returns exactly one [`Outcome`], even after a panic, a timeout or a crash.
//!
//! ```
//! use toolhub::prelude::*;
//!
//! /// Put `qty` units of `sku` in the cart.
//! #[derive(Deserialize, JsonSchema)]
//! struct AddItem {
//!     sku: String,
//!     #[schemars(range(min = 1))]
//!     qty: u32,
//! }
//!
//! #[derive(Default, Serialize, Deserialize)]
//! struct Cart {
//!     lines: Vec<(String, u32)>,
//! }
//! impl ToolState for Cart {
//!     const NAME: &'static str = "cart";
//! }
//!
//! async fn add_to_cart(item: AddItem, mut cart: State<Cart>, cx: CallContext) -> Result<usize, ToolError> {
//!     cart.lines.push((item.sku, item.qty));
//!     cx.progress("added");
//!     Ok(cart.lines.len()) // Ok commits the state with a version check, Err leaves it unchanged
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let hub = ToolHub::builder().tool(tool("add_to_cart", add_to_cart)).build().await?;
//!
//! let outcome = hub.call("add_to_cart", json!({"sku": "latte", "qty": 2})).thread("t1").await;
//! assert_eq!(outcome.output, json!(1));
//!
//! let refused = hub.call("add_to_cart", json!({"sku": "latte", "qty": 0})).thread("t1").await;
//! assert!(refused.model_text().contains("qty"));
//! # Ok(()) }
//! ```
//!
//! - Tools: [`tool()`], [`stateful`], [`blocking`], [`instance`], [`shared_instance`]; in plain JSON [`dynamic`],
//!   [`dynamic_stateful`] and [`legacy_stateful`]; or a kind of your own with an [`Executor`].
//! - Extractors of a tool function: [`State`], [`CallContext`], [`Shared`].
//! - Access to state from outside a call: [`StateManager`], by [`ContextId`] and [`StateKind`].
//! - Errors of a tool: [`ToolError`]; errors for a caller: [`CallError`], by [`ErrorKind`].
//! - Policies: [`Policy`] (timeouts, rate limits, concurrency, retries), [`Rule`] (deny, ask, allow), [`Hook`]; and the
//!   [`Answer`] to an approval.
//! - The journal of calls: [`ToolHub::calls`] with a [`CallQuery`].
//! - Stores: in memory, `Sqlite`, and for state alone `Files`, one readable file per context (feature `disk`, on by default).
//! - HTTP requests as tools: `rest::Rest`; programs as tools: `command::Command`; tools of any kind from config at run time:
//!   `config::create_tool` and `config::ToolFactory` (feature `connect`).
//! - Agents, which offer a model the available tools and persist their threads: `agent::AgentBuilder` (feature `agent`).
//! - Test support for tool authors: `toolhub::testing` (feature `testing`).
//!
//! # Cargo features
//!
//! | feature | adds |
//! |---|---|
//! | `disk` (default) | `Sqlite`, `Files`: persistent stores. Without it no C compiler is needed |
//! | `redis` | `Redis`: a persistent store on a Redis server. Includes `disk` |
//! | `connect` | `rest`, `openapi`, `command`: tools that send HTTP requests or run programs; `config`: tools from configuration |
//! | `mcp` | `mcp`: tools of MCP servers. Includes `connect` |
//! | `agent` | `agent`: the model loop, and agents with persistent threads |
//! | `stub` | `agent::Stub`: a scripted model and its server, for demos and tests without a key. Includes `agent` |
//! | `server` | `server`: the hub over HTTP |
//! | `testing` | `testing`: a controllable clock, scripted tools, assertions, the contract tests of stores |
#![forbid(unsafe_code)]

#[cfg(feature = "agent")]
pub use toolhub_agent as agent;
#[cfg(feature = "mcp")]
pub use toolhub_connect::mcp;
#[cfg(feature = "connect")]
pub use toolhub_connect::{command, config, openapi, rest, webhooks};
pub use toolhub_core::*;
#[cfg(feature = "server")]
pub use toolhub_server as server;
#[cfg(feature = "disk")]
pub use toolhub_store::{
    Compressed, Files, OpenStoreError, RestoreError, RestoreStoreError, Sqlite, StateBackups, WriteBehind, copy, files,
    open_store, open_store_with_backups, restore_store, sqlite, write_behind,
};

#[cfg(feature = "redis")]
pub use toolhub_store::{Redis, redis};

/// Everything a program that defines and calls tools usually needs.
pub mod prelude {
    pub use schemars::{self, JsonSchema};
    pub use serde::{self, Deserialize, Serialize};
    pub use serde_json::{Value, json};
    // Tools, calls and their outcomes.
    pub use toolhub_core::{
        CallContext, CallError, CallHandle, CallReceipt, Content, Effect, ErrorKind, Instance, NoArguments, Offer,
        OfferOptions, Outcome, Shared, SharedInstance, State, StateKind, StatefulTool, StatusScope, ToolBuilder,
        ToolError, ToolFilter, ToolHub, ToolState, Toolset, blocking, dynamic, export::Format, instance,
        shared_instance, stateful, tool,
    };
    // Policies, rules, approvals and hooks.
    pub use toolhub_core::{
        AfterDecision, Answer, ApprovalOutcome, BeforeDecision, BoxFuture, Hook, HookedCall, Policy, RateLimit, Retry,
        Rule,
        ids::{CallId, Caller, StateName, Tenant, ThreadId},
    };
}

/// The guide and the readme, compiled and run as doc tests.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/guide/first-tools.md")]
    mod first_tools {}
    #[doc = include_str!("../../../docs/guide/state.md")]
    mod state {}
    #[doc = include_str!("../../../docs/guide/status.md")]
    mod status {}
    #[doc = include_str!("../../../docs/guide/policies.md")]
    mod policies {}
    #[doc = include_str!("../../../docs/guide/threads.md")]
    mod threads {}
    #[doc = include_str!("../../../docs/guide/stores.md")]
    mod stores {}
    #[doc = include_str!("../../../docs/guide/journal.md")]
    mod journal {}
    #[cfg(feature = "agent")]
    #[doc = include_str!("../../../docs/guide/agents.md")]
    mod agents {}
    #[cfg(feature = "connect")]
    #[doc = include_str!("../../../docs/guide/rest.md")]
    mod rest {}
    #[cfg(feature = "connect")]
    #[doc = include_str!("../../../docs/guide/commands.md")]
    mod commands {}
    #[cfg(feature = "connect")]
    #[doc = include_str!("../../../docs/guide/migrate.md")]
    mod migrate {}
    #[cfg(feature = "connect")]
    #[doc = include_str!("../../../docs/guide/openapi.md")]
    mod openapi {}
    #[cfg(feature = "mcp")]
    #[doc = include_str!("../../../docs/guide/mcp.md")]
    mod mcp {}
}

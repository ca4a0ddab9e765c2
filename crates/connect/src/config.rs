//! Tools as they are written, and making tools of that at run time.
//!
//! In: a [`ToolConfig`], read from JSON, TOML or whatever serde reads; the binary's `toolhub.toml` is made of the same words. Out: a
//! `ToolBuilder`, or everything that is wrong, each with its key and what to do. One way through: `written` is what may be said,
//! `plan` works out what holds, `factory` has what a program brings and makes the tool. What depends on several tools, such as whether
//! those that one waits for are there, is left to whoever has them all.

mod diagnostics;
mod error;
mod factory;
mod path;
mod plan;
mod raw;
mod schema_check;
mod secret;
pub mod unit;

pub use diagnostics::{ConfigEnv, Diagnostics, Problem, ProcessEnv};
pub use error::ToolConfigError;
pub use factory::{ToolFactory, create_tool};
pub use path::{KeyPath, KeySegment};
pub use plan::{ToolPlan, auth::ResolvedAuth};
pub use raw::{
    Annotations, AnswerForm, AuthWay, Backoff, Cache, Calls, Cleanup, Command, Conflict, Connection, DependsOn, Groups,
    Keeper, KeyPlace, Kind, Method, RateLimit, RateLimits, RateScope, Rest, RestAuth, RestResult, Retry, ToolConfig,
    ToolState, UnknownKeys,
};
pub use secret::{SecretSource, SecretString};
pub use unit::{Delay, DurationOrNever, Size, Time, Unit};

//! The words of a tool's config: one struct for each part, one field for each key.
//!
//! In: nothing; these are shapes, read and written with serde. The schema is made of them, their defaults and their comments, and so is
//! the documentation of `toolhub.toml`. What a value means is worked out in `plan.rs`.

mod calls;
mod command;
mod rest;
mod tool;

pub use calls::{Backoff, Cache, Calls, RateLimit, RateLimits, RateScope, Retry};
pub use command::Command;
pub use rest::{AnswerForm, AuthWay, Connection, KeyPlace, Method, Rest, RestAuth, RestResult};
pub use tool::{Annotations, Cleanup, Conflict, DependsOn, Groups, Keeper, Kind, ToolConfig, ToolState, UnknownKeys};

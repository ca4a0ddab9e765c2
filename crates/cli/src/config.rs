//! The config `toolhub.toml`: read, checked, resolved, shown, and written for the first time.
//!
//! In: files, variables and flags. Out: a `Config` of plain values, or all problems at once, each with its place and what to
//! do. One way through: `load` finds files and lays layers over each other (`tree`, `environment`, `variables`, `overlay`),
//! `check` holds them to the schema, which is made of the structs in `raw`, and `resolve` works out what holds. `hub` makes
//! a hub of that, `change` compares two; `show`, `init` and `commands` are for people.

#[allow(dead_code, reason = "for the reload, which comes with the server")]
mod change;
mod check;
mod closest;
pub(crate) mod commands;
mod environment;
#[allow(dead_code, reason = "for `serve`, which comes with the server")]
mod hub;
mod init;
#[allow(dead_code, reason = "for `serve`, which comes with the server")]
mod kept;
mod later;
mod load;
mod overlay;
mod problem;
mod raw;
mod rehearse;
#[allow(dead_code, reason = "for `serve`, which comes with the server")]
mod resolve;
mod schema;
mod secret;
mod shape;
mod show;
mod tree;
mod unit;
mod variables;

use std::collections::BTreeMap;

use toolhub::status::StatusSettings;

#[allow(unused_imports, reason = "for `serve`, which comes with the server")]
pub(crate) use self::{
    change::ChangePlan,
    hub::Pieces,
    load::{Asked, Loaded, load},
    problem::{Problems, Style, render},
    raw::{Level, LogFormat, Mode, Scope},
    rehearse::rehearse,
};
#[allow(unused_imports, reason = "for `serve`, which comes with the server")]
pub(crate) use resolve::{
    Auth, Backend, Key, Opened, Policies, Scheduler, Server, State, Store, StoreTrouble, Telemetry, Threads, Tools,
};

/// What holds. Each section can be compared with that of another config.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    pub(crate) server: Server,
    pub(crate) auth: Auth,
    pub(crate) store: Store,
    pub(crate) state: State,
    pub(crate) status: StatusSettings,
    pub(crate) scheduler: Scheduler,
    pub(crate) threads: Threads,
    pub(crate) policies: Policies,
    pub(crate) tools: Tools,
    pub(crate) telemetry: Telemetry,
    /// The keys that hold until a restart, as they are written.
    fixed: BTreeMap<String, serde_json::Value>,
}

#[cfg(test)]
mod tests;

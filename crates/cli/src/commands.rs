//! The commands, one module each. They use only the HTTP API; `client` decides where its requests go.

pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod call;
pub(crate) mod calls;
pub(crate) mod chat;
pub(crate) mod clock;
pub(crate) mod completions;
pub(crate) mod config_command;
mod confirmation;
pub(crate) mod demo_words;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod guard;
pub(crate) mod import;
pub(crate) mod keys;
pub(crate) mod mcp;
mod paging;
pub(crate) mod reload;
pub(crate) mod restore;
pub(crate) mod runs;
pub(crate) mod state;
pub(crate) mod stub_llm;
pub(crate) mod threads;
pub(crate) mod tools;
pub(crate) mod version;

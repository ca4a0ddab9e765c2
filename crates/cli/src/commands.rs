//! The commands, one room for each. They speak the HTTP API and nothing else; where its requests go, `client` decides.

pub(crate) mod approvals;
pub(crate) mod backup;
pub(crate) mod call;
pub(crate) mod calls;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod config_command;
pub(crate) mod demo_words;
pub(crate) mod doctor;
pub(crate) mod guard;
pub(crate) mod import;
pub(crate) mod keys;
mod paging;
pub(crate) mod restore;
pub(crate) mod runs;
pub(crate) mod state;
pub(crate) mod stub_llm;
pub(crate) mod threads;
pub(crate) mod tools;
pub(crate) mod version;

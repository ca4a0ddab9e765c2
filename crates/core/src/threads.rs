//! Conversations: the live instances of each, and which ones there are.
//!
//! In: calls that name a thread. Out: a place for the tool's instance, and an answer to "is there such a thread?". What
//! tools remember of a thread is `state`; who may call in it is decided elsewhere.

mod book;
mod context;
mod directory;
mod known;
mod room;
mod rooms;

pub(crate) use book::{Book, keep, key};
pub use book::{ThreadInfo, ThreadPage};
pub use context::{InstanceInfo, ThreadContext, Threads};
pub(crate) use directory::Caps;
pub(crate) use known::Known;
pub(crate) use room::Chair;
pub(crate) use rooms::{Rooms, Use, alone_in, drop_idle};

//! The settings of tool state: which manager keeps it, what holds for connections, and what holds for business data.
//!
//! Plain values with their defaults and the checks that need nothing else. The hub and the stores act on them.

mod business;
mod connection;
mod manager;

pub use business::{BusinessStateConfig, ConflictResolution};
pub use connection::ConnectionStateConfig;
pub use manager::{FormatError, ManagerType, PersistenceFormat, StateManagerConfig};

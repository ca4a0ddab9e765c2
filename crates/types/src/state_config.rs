//! Settings of tool state: the state manager, connections to services, and business state.
//!
//! Plain values with defaults and the checks that need no other input. The hub and the stores apply them.

mod business;
mod connection;
mod manager;

pub use business::{BusinessStateConfig, ConflictResolution};
pub use connection::ConnectionStateConfig;
pub use manager::{FormatError, ManagerType, PersistenceFormat, StateManagerConfig};

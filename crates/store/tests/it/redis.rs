//! The store in Redis: what it promises beyond the contract, against real servers.

mod contract;
pub(crate) mod fixtures;
mod large_and_foreign;
mod losses;
mod lost_answers;
mod monitoring;
mod nodes;
mod refused_writes;
mod start_checks;
mod topologies;
mod watch;

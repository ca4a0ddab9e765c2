//! Tests of the guarantees that the stores of this crate give beyond the `Backend` contract.
#![allow(clippy::unwrap_used, reason = "a test may panic on setup errors")]

mod backup;
mod contract;
mod copy;
mod damage;
mod failpoints;
mod files;
mod files_backup;
mod files_crash;
mod files_damage;
mod files_failpoints;
mod files_kill;
mod fixtures;
mod full_store;
mod kill;
mod lock;
mod power_loss;
#[cfg(feature = "redis")]
mod redis;
mod simulated_disk;
mod store_equivalence;
mod vfs;
mod write_behind;
mod write_behind_backends;

//! What the stores of this crate promise beyond the trait, in one test binary.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it stands")]

mod backup;
mod contract;
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
mod simulated_disk;
mod store_equivalence;
mod vfs;
mod write_behind;
mod write_behind_backends;

//! What the stores of this crate promise beyond the trait, in one test binary.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it stands")]

mod agree;
mod backup;
mod behind;
mod behind_others;
mod contract;
mod damage;
mod drive;
mod failpoints;
mod files;
mod files_backup;
mod files_crash;
mod files_damage;
mod files_failpoints;
mod files_kill;
mod full;
mod kill;
mod lock;
mod power;
mod shelf;
mod vfs;

//! `guard`: the supervisor process of each command tool. The hub starts it; it is not meant to be typed, so no help lists it.
//!
//! In: the arguments of this process. Out: the exit code of the program, if the arguments ask for a guard. This is checked before
//! anything else starts, because every command tool has a guard process, and each pays for what is started here.

use std::process::ExitCode;

use toolhub::command::guard;

pub(crate) fn run_if_requested() -> Option<ExitCode> {
    guard::run_if_requested(std::env::args_os())
}

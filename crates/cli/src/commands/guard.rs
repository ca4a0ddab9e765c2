//! `guard`: the process above each program that is a tool. Started by the hub, never typed, and so in no list of commands.
//!
//! In: the arguments of this process. Out: the end of the program, if they ask for a guard. It is looked for before anything else is
//! read or started, because there is one guard for each program and each costs what is begun here.

use std::process::ExitCode;

use toolhub::command::guard;

pub(crate) fn run_if_requested() -> Option<ExitCode> {
    guard::run_if_requested(std::env::args_os())
}

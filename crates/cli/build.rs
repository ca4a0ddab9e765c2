//! Says of which revision the binary is, and what compiled it.
//!
//! In: the repository around the sources, if this crate is a part of it, and the compiler. Out: two variables for the compiler,
//! `unknown` where nothing can be found out.

use std::{env, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=TOOLHUB_REVISION={}", revision().unwrap_or_else(|| "unknown".into()));
    println!("cargo::rustc-env=TOOLHUB_RUSTC={}", rustc().unwrap_or_else(|| "unknown".into()));
}

/// The commit the sources are of. Sources that merely lie inside somebody's repository are none of its revisions.
fn revision() -> Option<String> {
    command_output("git", &["ls-files", "--error-unmatch", "Cargo.toml"])?;
    // It has a line more after each commit and each change of the branch.
    if let Some(log) = command_output("git", &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    command_output("git", &["rev-parse", "--short=12", "HEAD"])
}

fn rustc() -> Option<String> {
    let version = command_output(&env::var("RUSTC").ok()?, &["--version"])?;
    version.split_whitespace().nth(1).map(str::to_owned)
}

fn command_output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

//! Embeds the git revision and the compiler version in the binary.
//!
//! In: the repository around the sources, if this crate is tracked in it, and the compiler. Out: two variables for `env!`,
//! `unknown` where the value cannot be determined.

use std::{env, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=TOOLHUB_REVISION={}", revision().unwrap_or_else(|| "unknown".into()));
    println!("cargo::rustc-env=TOOLHUB_RUSTC={}", rustc().unwrap_or_else(|| "unknown".into()));
}

/// The commit of the sources. Sources that lie untracked inside another repository have no revision.
fn revision() -> Option<String> {
    command_output("git", &["ls-files", "--error-unmatch", "Cargo.toml"])?;
    // Git appends to this file at every commit and branch switch.
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

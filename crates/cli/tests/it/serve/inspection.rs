//! What the programs of command tools can see of the hub.
#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use toolhub_testkit::TempFolder;

/// Whether this process has capabilities, with which it may inspect every process.
fn has_capabilities() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default();
    mask.contains(|digit| !matches!(digit, '0' | '\t'))
}

#[test]
fn a_program_cannot_read_the_environment_of_the_hub() {
    let folder = TempFolder::new();
    let canary = "canary-of-the-environment";
    // Prints how many processes have the variable, and how many it can inspect at all: at least itself.
    let script = "for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ 2>/dev/null; done > environ.txt; \
                  printf '[%s, %s]' $(grep -c ^SECRET_OF_HUB= environ.txt) $(grep -c ^SEEN_BY_TOOL= environ.txt)";
    let config = format!(
        "[tools.peek]\ncommand = 'sh'\nargs = ['-c', {script:?}]\ncwd = {:?}\nenv = {{ SEEN_BY_TOOL = '1' }}\n",
        folder.path()
    );
    folder.write("toolhub.toml", &config);
    let mut command = if has_capabilities() {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-all", "--inh-caps=-all", env!("CARGO_BIN_EXE_toolhub")]);
        command
    } else {
        Command::new(env!("CARGO_BIN_EXE_toolhub"))
    };
    command.args(["call", "peek", "--json"]).current_dir(folder.path()).stdin(Stdio::null());
    let output = command.env("SECRET_OF_HUB", canary).output().unwrap();
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let counts = outcome["output"].as_array().unwrap_or_else(|| panic!("{outcome}"));
    assert_eq!(counts[0], json!(0), "the secret of the hub was read: {outcome}");
    assert_ne!(counts[1], json!(0), "the program can read its own environment: {outcome}");
}

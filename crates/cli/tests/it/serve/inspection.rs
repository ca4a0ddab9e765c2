//! What the programs of command tools can see of the hub.
#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use toolhub_testkit::TempFolder;

/// Whether this process may inspect every process, as root outside a container may.
fn may_inspect_all() -> bool {
    const CAP_SYS_PTRACE: u32 = 19;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> CAP_SYS_PTRACE & 1 == 1
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
    let mut command = if may_inspect_all() {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace", env!("CARGO_BIN_EXE_toolhub")]);
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

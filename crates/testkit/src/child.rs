//! Runs an ignored test of the current test binary as a child process and kills it in the middle of its work.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

/// Runs the ignored test `test` of this binary in a process of its own with these environment variables, passes each line of its
/// standard output to `on_line`, and kills it (SIGKILL) once `on_line` has answered `true` so many times. Lines written before the
/// kill are still passed on.
///
/// # Panics
/// When the child exits by itself before that.
pub fn kill_after(
    test: &str,
    variables: &[(&str, &str)],
    acknowledgements: usize,
    mut on_line: impl FnMut(&str) -> bool,
) {
    let mut child = Command::new(std::env::current_exe().expect("the test binary has a path"))
        .args([test, "--exact", "--ignored", "--nocapture"])
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test binary can be started");
    let mut seen = 0;
    for line in BufReader::new(child.stdout.take().expect("stdout is piped")).lines() {
        if on_line(&line.expect("the child writes UTF-8")) {
            seen += 1;
            if seen == acknowledgements {
                child.kill().expect("the child can be killed");
            }
        }
    }
    let status = child.wait().expect("the child can be waited for");
    assert!(seen >= acknowledgements, "the child exited by itself after {seen} acknowledgements: {status}");
}

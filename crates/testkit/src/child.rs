//! Runs an ignored test of the current test binary as a child process and kills it in the middle of its work.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

/// Runs the ignored test `test` of this binary in a child process with these environment variables, passes each line of its
/// standard output to `on_line`, and kills it (SIGKILL) once `on_line` has returned `true` `acknowledgements` times. Lines written
/// before the kill are still passed to `on_line`.
///
/// # Panics
/// When the child exits before that.
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
    let mut acknowledged = 0;
    for line in BufReader::new(child.stdout.take().expect("stdout is piped")).lines() {
        if on_line(&line.expect("the child writes UTF-8")) {
            acknowledged += 1;
            if acknowledged == acknowledgements {
                child.kill().expect("the child can be killed");
            }
        }
    }
    let status = child.wait().expect("the child can be waited for");
    assert!(
        acknowledged >= acknowledgements,
        "the child exited early, after {acknowledged} of {acknowledgements} acknowledgements: {status}"
    );
}

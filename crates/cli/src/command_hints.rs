//! Completes the commands that the output suggests, so that they concern the same hub and thread.
//!
//! In: a line that may be a command, and the flags of this invocation. Out: the command with those flags, ready to run.

/// Commands that concern no server.
const LOCAL_COMMANDS: [&str; 9] =
    ["init", "serve", "demo", "config", "restore", "import", "stub-llm", "completions", "version"];
/// Commands that concern a thread if one is given.
const THREAD_COMMANDS: [&str; 8] =
    ["call", "chat", "calls list", "runs list", "tools list", "tools explain", "tools export", "tools call"];

/// The line with the flags it lacks, if it is a command: `target` is ` --server URL`, ` --config FILE` or empty.
pub(crate) fn with_flags(line: &str, target: &str, thread: Option<&str>) -> String {
    let Some(command) = line.strip_prefix("toolhub ") else { return line.to_owned() };
    let names = |words: &[&str]| words.iter().any(|word| command == *word || command.starts_with(&format!("{word} ")));
    let mut line = line.to_owned();
    if let Some(thread) = thread.filter(|_| names(&THREAD_COMMANDS) && !command.contains("--thread")) {
        line += &format!(" --thread {thread}");
    }
    let is_for_servers = target.starts_with(" --server");
    let has_target = command.contains("--server") || command.contains("--config");
    let is_local = is_for_servers && names(&LOCAL_COMMANDS);
    if !has_target && !is_local {
        line += target;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suggested_command_concerns_the_same_hub_and_thread() {
        let check =
            |line: &str, target: &str, expected: &str| assert_eq!(with_flags(line, target, Some("t1")), expected);
        let server = " --server http://h:1";
        check(
            "toolhub call weather city=Oslo",
            server,
            "toolhub call weather city=Oslo --thread t1 --server http://h:1",
        );
        check("toolhub call a --thread t2 --server x", server, "toolhub call a --thread t2 --server x");
        check("toolhub calls list", "", "toolhub calls list --thread t1");
        check("toolhub keys list", server, "toolhub keys list --server http://h:1");
        check("toolhub config check", server, "toolhub config check");
        check("toolhub config check", " --config a.toml", "toolhub config check --config a.toml");
        check("set it with `toolhub call`", server, "set it with `toolhub call`");
    }
}

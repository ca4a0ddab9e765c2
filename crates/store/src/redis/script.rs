//! The Lua scripts that run inside Redis, and calls of them.
//!
//! In: keys and arguments. Out: a command that names the script by its checksum, or contains it for a server that does not have it yet.

use std::sync::LazyLock;

use redis::Cmd;

/// A script and its checksum.
pub(super) struct Script {
    source: String,
    checksum: String,
}

const ROWS: &str = include_str!("script/rows.lua");
const EPOCH: &str = include_str!("script/epoch.lua");

/// Commits a batch. Refused by a server whose memory is full.
pub(super) static COMMIT: LazyLock<Script> =
    LazyLock::new(|| Script::new("", &[ROWS, EPOCH, include_str!("script/commit.lua")]));
/// The same for a batch that stores nothing, so that records can be removed from a server whose memory is full.
pub(super) static COMMIT_WITHOUT_PUTS: LazyLock<Script> =
    LazyLock::new(|| Script::new("allow-oom", &[ROWS, EPOCH, include_str!("script/commit.lua")]));
/// Removes expired rows of one partition.
pub(super) static SWEEP: LazyLock<Script> =
    LazyLock::new(|| Script::new("allow-oom", &[ROWS, include_str!("script/sweep.lua")]));
/// Reads rows of one partition.
pub(super) static SCAN_PARTITION: LazyLock<Script> =
    LazyLock::new(|| Script::new("no-writes", &[ROWS, include_str!("script/scan_partition.lua")]));
/// Names a command that the user may not run.
pub(super) static PERMISSIONS: LazyLock<Script> =
    LazyLock::new(|| Script::new("no-writes", &[include_str!("script/permissions.lua")]));
/// Reads the epoch of a bucket, and begins one if commits may be missing.
pub(super) static CHECK_EPOCH: LazyLock<Script> =
    LazyLock::new(|| Script::new("allow-oom", &[EPOCH, include_str!("script/check_epoch.lua")]));
/// Tells the time of the server that has a key.
pub(super) static TIME: LazyLock<Script> = LazyLock::new(|| Script::new("no-writes", &["return redis.call('TIME')"]));

impl Script {
    fn new(flags: &str, parts: &[&str]) -> Self {
        let source = format!("#!lua flags={flags}\n{}", parts.concat());
        let checksum = redis::Script::new(&source).get_hash().to_owned();
        Self { source, checksum }
    }
}

/// A script with its keys and arguments.
#[derive(Clone)]
pub(super) struct ScriptCall {
    script: &'static Script,
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
}

impl ScriptCall {
    pub(super) fn new(script: &'static Script, keys: Vec<String>) -> Self {
        Self { script, keys, args: Vec::new() }
    }

    /// Adds an argument.
    pub(super) fn arg(&mut self, arg: impl Into<Vec<u8>>) {
        self.args.push(arg.into());
    }

    /// Replaces an argument.
    pub(super) fn set_arg(&mut self, at: usize, arg: &str) {
        self.args[at] = arg.into();
    }

    pub(super) fn command(&self, with_source: bool) -> Cmd {
        let bytes = self.args.iter().map(Vec::len).sum::<usize>() + self.keys.iter().map(String::len).sum::<usize>();
        let mut command = Cmd::with_capacity(self.keys.len() + self.args.len() + 3, bytes + 64);
        if with_source {
            command.arg("EVAL").arg(&self.script.source);
        } else {
            command.arg("EVALSHA").arg(&self.script.checksum);
        }
        command.arg(self.keys.len());
        for key in &self.keys {
            command.arg(key);
        }
        for arg in &self.args {
            command.arg(arg.as_slice());
        }
        command
    }
}

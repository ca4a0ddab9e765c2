//! The binary as a server, in its own process.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    thread::JoinHandle,
};

pub(super) struct Process {
    child: Child,
    pub(super) port: u16,
    out: Option<JoinHandle<String>>,
    err: Option<JoinHandle<String>>,
}

impl Process {
    /// Starts the server and waits until it prints its address.
    pub(super) fn start(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_toolhub")).args(arguments), folder, variables)
    }

    /// The same with a maximum file size, as on a full disk.
    pub(super) fn start_with_file_limit(
        folder: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
        bytes: usize,
    ) -> Self {
        let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", bytes / 512);
        let shell = &mut Command::new("sh");
        shell.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_toolhub")]).args(arguments);
        Self::spawn(shell, folder, variables)
    }

    /// The same with a file system of this size in a subfolder. Mounts it in a namespace of the process, which needs root or user
    /// namespaces.
    pub(super) fn start_on_small_disk(
        folder: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
        (disk, bytes): (&str, usize),
    ) -> Self {
        std::fs::create_dir(folder.join(disk)).expect("the folder is new");
        let mounted = format!("mount -t tmpfs -o size={bytes} tmpfs {disk} && exec \"$@\"");
        let script = format!("n=-Urm; unshare $n true 2>&1 || n=-m; exec unshare $n sh -c '{mounted}' sh \"$@\"");
        let shell = &mut Command::new("sh");
        shell.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_toolhub")]).args(arguments);
        Self::spawn(shell, folder, variables)
    }

    fn spawn(command: &mut Command, folder: &Path, variables: &[(&str, &str)]) -> Self {
        command.current_dir(folder).env_clear().env("HOME", folder).env("TMPDIR", folder);
        command.envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary can be started");
        let mut stderr = child.stderr.take().expect("its stderr is ours");
        let err = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let mut lines = BufReader::new(child.stdout.take().expect("its stdout is ours"));
        let mut output = String::new();
        let port = loop {
            let begun = output.len();
            if lines.read_line(&mut output).expect("it writes text") == 0 {
                panic!("it exited: {output}{}", err.join().unwrap_or_default());
            }
            let port = output[begun..].split("http://127.0.0.1:").nth(1);
            if let Some(port) = port {
                let digits: String = port.chars().take_while(char::is_ascii_digit).collect();
                break digits.parse().expect("a port is a number");
            }
        };
        let out = std::thread::spawn(move || {
            let _ = lines.read_to_string(&mut output);
            output
        });
        Self { child, port, out: Some(out), err: Some(err) }
    }

    pub(super) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("kill can be run").success());
    }

    /// The largest resident memory it has had, in bytes, on systems with `/proc`.
    pub(super) fn peak_memory(&self) -> Option<u64> {
        self.read_status("VmHWM:")
    }

    /// Its resident memory, in bytes, on systems with `/proc`.
    pub(super) fn memory(&self) -> Option<u64> {
        self.read_status("VmRSS:")
    }

    fn read_status(&self, name: &str) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    }

    /// Waits for the exit; returns the exit code and all output.
    pub(super) fn wait_for_exit(mut self) -> (Option<i32>, String, String) {
        let status = self.child.wait().expect("it ends");
        let all = |thread: Option<JoinHandle<String>>| thread.and_then(|thread| thread.join().ok()).unwrap_or_default();
        let (out, err) = (all(self.out.take()), all(self.err.take()));
        (status.code(), out, err)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

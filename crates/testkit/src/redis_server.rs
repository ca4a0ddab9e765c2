//! A real Redis server of one test, on a free port, with a folder of its own; killed on drop.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::TempFolder;

/// A running `redis-server`.
#[derive(Debug)]
pub struct RedisServer {
    child: Child,
    port: u16,
    settings: Vec<String>,
    folder: TempFolder,
}

/// How often a port that another process took meanwhile is replaced.
const ATTEMPTS: usize = 10;

impl RedisServer {
    /// Starts a server with an append-only file that is synced with each write.
    ///
    /// # Panics
    /// When `redis-server` is missing.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&["--appendonly yes", "--appendfsync always"])
    }

    /// Starts a server with these settings, such as `--appendonly yes`. `{folder}` stands for its folder, `{port}` for its port.
    ///
    /// # Panics
    /// When `redis-server` is missing or does not start.
    #[must_use]
    pub fn start_with(settings: &[&str]) -> Self {
        let folder = TempFolder::in_memory();
        let settings = settings.iter().flat_map(|setting| setting.split(' '));
        let settings: Vec<String> = settings.map(|word| word.replace("{folder}", &folder.text())).collect();
        Self::start_in(folder, settings)
    }

    /// Starts a Sentinel that watches the primary at this port under the name `main`.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start_sentinel(primary: u16, quorum: usize) -> Self {
        Self::start_sentinel_with(primary, quorum, "")
    }

    /// The same with these lines in its config file.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start_sentinel_with(primary: u16, quorum: usize, lines: &str) -> Self {
        let folder = TempFolder::in_memory();
        let text = format!(
            "sentinel monitor main 127.0.0.1 {primary} {quorum}\n\
             sentinel down-after-milliseconds main 300\nsentinel failover-timeout main 2000\n{lines}\n"
        );
        folder.write("sentinel.conf", &text);
        let config = folder.join("sentinel.conf").display().to_string();
        Self::start_in(folder, vec![config, "--sentinel".into()])
    }

    fn start_in(folder: TempFolder, settings: Vec<String>) -> Self {
        for _ in 0..ATTEMPTS {
            let port = free_port();
            if let Some(child) = spawn(port, &settings, &folder) {
                return Self { child, port, settings, folder };
            }
        }
        panic!("redis-server does not start with {settings:?}");
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &TempFolder {
        &self.folder
    }

    /// Runs a command with `redis-cli` and returns what it prints.
    ///
    /// # Panics
    /// When `redis-cli` is missing.
    #[must_use]
    pub fn cli(&self, args: &[&str]) -> String {
        let output = Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(args).output();
        let output = output.expect("redis-cli is installed (Debian, Ubuntu: apt-get install redis-tools)");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Kills the server (SIGKILL).
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts a killed server again, with the same port and files.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(self.port, &self.settings, &self.folder).expect("the server starts again on its port");
    }

    /// Ends the connections of its replicas, and lets none of them connect again. Connections of other clients stay.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn refuse_replicas(&self) {
        assert_eq!(self.cli(&["CONFIG", "SET", "requirepass", "x"]), "OK");
        assert_eq!(self.cli(&["-a", "x", "--no-auth-warning", "CLIENT", "KILL", "TYPE", "replica"]), "1");
    }

    /// Whether it has the role of a primary.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.cli(&["ROLE"]).starts_with("master")
    }

    /// Whether it is a replica that has all data of its primary.
    #[must_use]
    pub fn is_synchronized(&self) -> bool {
        self.cli(&["INFO", "replication"]).contains("master_link_status:up")
    }

    /// Freezes the server (SIGSTOP) until [`resume`](Self::resume).
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Continues a frozen server.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("`kill` can be run").success(), "the server has ended");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until servers have reached a state. Asking them costs a process each time, which they need time for, too.
pub(crate) fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// A port that was free a moment ago. Low enough that a Cluster's bus could use the port 10,000 above it.
fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("a listener has an address").port();
        if port < 55_000 {
            return port;
        }
    }
}

/// Returns when the server accepts connections; `None` if it ended.
fn spawn(port: u16, settings: &[String], folder: &TempFolder) -> Option<Child> {
    let (port, folder_text) = (port.to_string(), folder.text());
    let settings = settings.iter().map(|word| word.replace("{port}", &port));
    let mut command = Command::new("redis-server");
    // The config file of a Sentinel comes first; `--port 0` of a server with TLS only replaces the port.
    let (first, others): (Vec<String>, Vec<String>) = settings.partition(|word| word.ends_with(".conf"));
    command.args(&first).args(["--port", &port, "--bind", "127.0.0.1", "--dir", &folder_text]);
    command.args(["--daemonize", "no", "--logfile", ""]);
    if first.is_empty() {
        command.args(["--save", ""]);
    }
    command.args(others);
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = spawned.expect("redis-server is installed (Debian, Ubuntu: apt-get install redis-server)");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
    let is_ready = |line: &String| line.contains("Ready to accept connections") || line.contains("Sentinel ID is");
    if lines.by_ref().map_while(Result::ok).any(|line| is_ready(&line)) {
        // The server would block if nobody read its log.
        std::thread::spawn(move || lines.for_each(drop));
        return Some(child);
    }
    let _ = child.wait();
    None
}

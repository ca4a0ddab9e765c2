//! Several servers with one config and tools whose effects are written to a file.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;
use toolhub_testkit::TempFolder;

use crate::serve::{HttpConnection, Process};

/// Much longer than calls may stay open, so only a failing test reaches it.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// `quick` and `slow` append their request to the ledger: one line for each execution. They get none if their node is killed before.
const TOOLS: &str = r#"
[tools.counter]
builtin = "counter"
state = { conflict_resolution = "retry", rerunnable = true }
[tools.quick]
command = "sh"
args = ["-c", 'read -r request || exit 1; printf "%s\n" "$request" >>ledger; echo 1']
parameters = { type = "object" }
confirm = false
[tools.slow]
command = "sh"
args = ["-c", 'read -r request || exit 1; printf "%s\n" "$request" >>ledger; sleep 0.4; echo 1']
parameters = { type = "object" }
confirm = false
"#;

/// Running servers; each can be killed and started again.
pub(super) struct Nodes {
    nodes: Vec<Node>,
    folder: TempFolder,
}

struct Node {
    /// Environment variables of its process.
    variables: Vec<(&'static str, String)>,
    process: Mutex<Option<Process>>,
}

impl Node {
    fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Nodes {
    /// Starts so many nodes. They use these addresses of one store in turn.
    pub(super) fn start(urls: &[String], count: usize) -> Self {
        Self::start_with(urls, count, "")
    }

    /// The same with more tools and settings.
    pub(super) fn start_with(urls: &[String], count: usize, more: &str) -> Self {
        let variables = |at: usize| vec![("TOOLHUB__STORE__URL", urls[at % urls.len()].clone())];
        Self::start_each((0..count).map(variables).collect(), more)
    }

    /// Starts a node with each of these sets of environment variables, which name the store.
    pub(super) fn start_each(variables: Vec<Vec<(&'static str, String)>>, more: &str) -> Self {
        let folder = TempFolder::in_memory();
        folder.write("toolhub.toml", &format!("[store]\nbackend = \"redis\"\nnode_timeout = \"2s\"\n{TOOLS}{more}"));
        folder.write("ledger", "");
        let node = |variables| Node { variables, process: Mutex::default() };
        let nodes = Self { nodes: variables.into_iter().map(node).collect(), folder };
        thread::scope(|scope| {
            for at in 0..nodes.len() {
                let nodes = &nodes;
                scope.spawn(move || nodes.restart(at));
            }
        });
        nodes
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Starts a node that does not run.
    pub(super) fn restart(&self, node: usize) {
        self.restart_with(node, &[]);
    }

    /// The same with more environment variables.
    pub(super) fn restart_with(&self, node: usize, more: &[(&str, &str)]) {
        let variables = [&self.variables(node), more].concat();
        let process = Process::start(&self.folder, &["serve", "--port", "0"], &variables);
        *self.nodes[node].lock() = Some(process);
    }

    /// The environment variables of a node.
    pub(super) fn variables(&self, node: usize) -> Vec<(&str, &str)> {
        let mut variables = vec![("TOOLHUB__TELEMETRY__LOG__LEVEL", "off"), ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")];
        variables.extend(self.nodes[node].variables.iter().map(|(name, value)| (*name, value.as_str())));
        variables
    }

    /// Ends a node by SIGKILL.
    pub(super) fn kill(&self, node: usize) {
        // Dropping it kills it.
        self.nodes[node].lock().take().expect("the node is running");
    }

    /// Ends a node by SIGTERM; returns its exit code.
    pub(super) fn stop(&self, node: usize) -> Option<i32> {
        self.signal(node, "TERM");
        // Clients still see the node while it is being stopped.
        thread::park_timeout(Duration::from_millis(50));
        let process = self.nodes[node].lock().take().expect("the node is running");
        process.wait_for_exit().0
    }

    pub(super) fn signal(&self, node: usize, name: &str) {
        self.nodes[node].lock().as_ref().expect("the node is running").signal(name);
    }

    /// The port of a node, if it is running.
    pub(super) fn port(&self, node: usize) -> Option<u16> {
        self.nodes[node].lock().as_ref().map(|process| process.port)
    }

    /// What a running node returns for a path; `None` if it is not found.
    pub(super) fn get(&self, node: usize, path: &str) -> Option<Value> {
        let port = self.port(node).expect("the node is running");
        let started = Instant::now();
        loop {
            let response = HttpConnection::connect(port).send(&format!("GET {path}"), "", "");
            match response.status {
                200 => return Some(response.json()),
                404 => return None,
                // Its connection to the store may have been lost a moment ago.
                503 if started.elapsed() < LIMIT => thread::park_timeout(PAUSE),
                status => panic!("{path}: {status}: {}", response.text),
            }
        }
    }

    /// All items of a list, as a running node returns them.
    pub(super) fn list(&self, node: usize, path: &str) -> Vec<Value> {
        let (mut items, mut next) = (Vec::new(), String::new());
        loop {
            let page = self.get(node, &format!("{path}{next}")).unwrap_or_default();
            items.extend(page["items"].as_array().unwrap_or_else(|| panic!("not a list: {page}")).iter().cloned());
            match page["nextCursor"].as_str() {
                Some(cursor) => next = format!("&cursor={cursor}"),
                None => return items,
            }
        }
    }

    /// The records of the calls of a thread, as a running node returns them.
    pub(super) fn calls(&self, node: usize, thread: &str) -> BTreeMap<String, Value> {
        let calls = self.list(node, &format!("/api/v1/calls?limit=500&threadId={thread}"));
        calls.into_iter().map(|call| (call["id"].as_str().expect("a call has an id").to_owned(), call)).collect()
    }

    /// Waits until none of these nodes lists a call that has not ended.
    #[track_caller]
    pub(super) fn wait_until_all_calls_ended(&self, nodes: impl Iterator<Item = usize>) {
        let started = Instant::now();
        for node in nodes {
            for status in ["executing", "scheduled", "validating"] {
                loop {
                    let open = self.list(node, &format!("/api/v1/calls?limit=500&status={status}"));
                    if open.is_empty() {
                        break;
                    }
                    assert!(started.elapsed() < LIMIT, "node {node} still lists as {status}: {open:#?}");
                    thread::park_timeout(PAUSE);
                }
            }
        }
    }

    /// The requests of all executions of `quick` and `slow` so far.
    pub(super) fn ledger(&self) -> Vec<Value> {
        let text = self.folder.read("ledger");
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }

    pub(super) fn folder(&self) -> &TempFolder {
        &self.folder
    }
}

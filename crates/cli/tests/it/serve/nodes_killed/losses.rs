//! What the nodes report as lost by the store.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

/// A loss is reported by the node whose commits it concerns, a few seconds after the server is back.
pub(super) const REPORTED_WITHIN: Duration = Duration::from_secs(30);

/// Listens to the events `store.lost` of nodes.
#[derive(Debug, Default)]
pub(super) struct LossListener(Arc<Mutex<Losses>>);

#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) partitions: BTreeSet<String>,
    pub(super) calls: BTreeSet<String>,
    /// Whether an event could not name everything.
    pub(super) is_incomplete: bool,
    pub(super) commits: u64,
    is_listening: bool,
}

impl Losses {
    /// Whether more can be reported.
    pub(super) fn may_grow(&self) -> bool {
        self.is_listening
    }

    fn add(&mut self, data: &str) {
        let event: Value = serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
        let number = |name: &str| event[name].as_u64().unwrap_or_else(|| panic!("no `{name}` in {event}"));
        let names = |name: &str| {
            let names = event[name].as_array().unwrap_or_else(|| panic!("no `{name}` in {event}"));
            names.iter().map(|name| name.as_str().expect("a name").to_owned()).collect::<Vec<_>>()
        };
        let commits = number("commits");
        assert!(commits > 0, "a report of nothing: {event}");
        self.commits += commits;
        self.partitions.extend(names("partitions"));
        self.calls.extend(names("calls"));
        self.is_incomplete |= number("otherPartitions") > 0;
    }
}

impl LossListener {
    /// Listens to a node until it ends.
    pub(super) fn listen(&self, port: u16) {
        let losses = self.0.clone();
        self.lock().is_listening = true;
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the node accepts connections");
        let request = "GET /api/v1/events?types=store.lost HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("the request is sent");
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        let status = lines.next();
        assert!(status.as_ref().is_some_and(|status| status.contains("200")), "not listening: {status:?}");
        thread::spawn(move || {
            let mut name = String::new();
            for line in lines {
                if let Some(of_next) = line.strip_prefix("event:") {
                    of_next.trim().clone_into(&mut name);
                } else if let Some(data) = line.strip_prefix("data:") {
                    match name.as_str() {
                        "store.lost" => lock(&losses).add(data),
                        // Events were missed.
                        _ => lock(&losses).is_incomplete = true,
                    }
                }
            }
        });
    }

    /// Waits until lost commits of a thread or call were reported.
    #[track_caller]
    pub(super) fn wait_for_some(&self) {
        let started = Instant::now();
        loop {
            let losses = self.lock();
            if losses.commits > 0 && !losses.partitions.is_empty() && !losses.calls.is_empty() {
                return;
            }
            assert!(started.elapsed() < REPORTED_WITHIN, "nothing was lost, or it was not reported: {losses:?}");
            drop(losses);
            thread::park_timeout(Duration::from_millis(50));
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Losses> {
        lock(&self.0)
    }
}

fn lock(losses: &Mutex<Losses>) -> MutexGuard<'_, Losses> {
    losses.lock().expect("the thread that listens could read all events")
}

//! What the nodes report as lost by the store.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use serde_json::Value;

/// An event names so many partitions at most.
const MAX_NAMED: usize = 20;

/// Listens to the events `store.lost` of nodes.
#[derive(Debug, Default)]
pub(super) struct LossListener(Arc<Mutex<Losses>>);

#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) partitions: BTreeSet<String>,
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
}

impl LossListener {
    /// Listens to a node until it ends.
    pub(super) fn listen(&self, port: u16) {
        let losses = self.0.clone();
        self.lock().is_listening = true;
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the node accepts connections");
        let request = "GET /api/v1/events?types=store.lost HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("the request is sent");
        thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let Some(data) = line.strip_prefix("data:") else { continue };
                let event: Value = serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
                let Some(named) = find_partitions(&event) else { continue };
                let mut losses = lock(&losses);
                losses.is_incomplete |= named.len() >= MAX_NAMED;
                losses.partitions.extend(named.iter().filter_map(Value::as_str).map(str::to_owned));
                losses.commits += event["commits"].as_u64().or(event["data"]["commits"].as_u64()).unwrap_or(0);
            }
        });
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Losses> {
        lock(&self.0)
    }
}

fn lock(losses: &Mutex<Losses>) -> MutexGuard<'_, Losses> {
    losses.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find_partitions(event: &Value) -> Option<&Vec<Value>> {
    event["partitions"].as_array().or(event["data"]["partitions"].as_array())
}

//! Durations of the requests to a server by operation, and the outputs that do not fit their schema.
//!
//! In: the duration of each request, each such output. Out: values for metrics. Failed requests count too.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use toolhub_core::{Latency, LatencyRecorder};

use super::{era::Era, target::Target};

#[derive(Debug, Default)]
pub(super) struct OperationMeters {
    initialize: LatencyRecorder,
    discover: LatencyRecorder,
    list: LatencyRecorder,
    call: LatencyRecorder,
    mismatches: AtomicU64,
    read_resource: LatencyRecorder,
    get_prompt: LatencyRecorder,
    complete: LatencyRecorder,
}

impl OperationMeters {
    /// A handshake, with the start of the program.
    pub(super) fn record_handshake(&self, era: Era, duration: Duration) {
        match era {
            Era::Legacy => self.initialize.record(duration),
            Era::Modern => self.discover.record(duration),
        }
    }

    /// One page of the list of tools.
    pub(super) fn record_list(&self, duration: Duration) {
        self.list.record(duration);
    }

    /// A request on behalf of a call.
    pub(super) fn record_call(&self, target: &Target, duration: Duration) {
        let recorder = match target {
            Target::Tool(_) => &self.call,
            Target::Resource => &self.read_resource,
            Target::Prompt => &self.get_prompt,
            Target::Completion => &self.complete,
        };
        recorder.record(duration);
    }

    /// An output that does not fit the schema of its tool.
    pub(super) fn record_mismatch(&self) {
        self.mismatches.fetch_add(1, Relaxed);
    }

    pub(super) fn mismatches(&self) -> u64 {
        self.mismatches.load(Relaxed)
    }

    /// The latencies of the operations that were used, by the name of their method.
    pub(super) fn latencies(&self) -> Vec<(&'static str, Latency)> {
        let all = [
            ("initialize", &self.initialize),
            ("server/discover", &self.discover),
            ("tools/list", &self.list),
            ("tools/call", &self.call),
            ("resources/read", &self.read_resource),
            ("prompts/get", &self.get_prompt),
            ("completion/complete", &self.complete),
        ];
        let latencies = all.into_iter().map(|(method, recorder)| (method, recorder.latency()));
        latencies.filter(|(_, latency)| latency.count > 0).collect()
    }
}

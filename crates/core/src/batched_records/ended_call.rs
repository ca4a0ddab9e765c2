//! An ended plain call, and the journal record made of it.
//!
//! In: the context and the outcome of a call. Out: its record, grouped with others by partition. The context is moved, not
//! copied; the record is made by the writer task.

use std::{collections::HashMap, sync::Arc, time::Duration};

use serde_json::Value;

use super::CAPACITY_KIB;
use crate::{call::Call, execution::CallContext, journal::CallRecord};
use toolhub_storage::backend::Partition;
use toolhub_types::{
    content::Content,
    effect::Effect,
    error::CallError,
    outcome::{Outcome, Status, WriteDurability},
    timestamp::Timestamp,
    timing::CallTiming,
};

/// A call that has ended. Owns the call's context: nothing is copied, and the writer task drops it.
pub(crate) struct EndedCall {
    context: CallContext,
    pub(super) weight_kib: usize,
    status: Status,
    effect: Effect,
    error: Option<Box<CallError>>,
    cached: bool,
    /// The artifacts of the output, which are removed with the record.
    artifacts: Vec<Content>,
    attempts: u32,
    queued: Duration,
    duration: Duration,
    timing: Option<Box<CallTiming>>,
    ended_at: Timestamp,
}

impl EndedCall {
    pub(crate) fn new(context: CallContext, outcome: &Outcome) -> Self {
        let weight_kib = 1 + context.envelope().call.arguments.compact_bytes() / 1024;
        Self {
            context,
            weight_kib: weight_kib.min(CAPACITY_KIB),
            status: outcome.status,
            effect: outcome.effect,
            error: outcome.error.clone().map(Box::new),
            cached: outcome.cached,
            artifacts: outcome
                .content
                .iter()
                .filter(|piece| matches!(piece, Content::Artifact { .. }))
                .cloned()
                .collect(),
            attempts: outcome.attempts,
            queued: outcome.queued,
            duration: outcome.duration,
            timing: outcome.timing.clone(),
            ended_at: outcome.ended_at,
        }
    }

    pub(super) fn permits(&self) -> u32 {
        u32::try_from(self.weight_kib).unwrap_or(u32::MAX)
    }
}

/// The records of one partition, and the capacity they take.
#[derive(Default)]
pub(super) struct RecordBatch {
    pub(super) records: Vec<CallRecord>,
    pub(super) weight_kib: usize,
}

/// Builds the records, grouped by thread. A call without a thread has its own partition.
pub(super) fn by_partition(calls: Vec<EndedCall>) -> impl Iterator<Item = (Partition, RecordBatch)> {
    let (mut threads, mut without_thread) = (HashMap::<Partition, RecordBatch>::new(), Vec::new());
    for call in calls {
        let EndedCall {
            context,
            weight_kib,
            status,
            effect,
            error,
            cached,
            artifacts,
            attempts,
            queued,
            duration,
            timing,
            ended_at,
        } = call;
        let (tool, redactor) = (context.tool().clone(), context.services().redactor.clone());
        let Call { head, arguments, .. } = context.into_call();
        let mut arguments = arguments.into_value();
        redactor.redact(&mut arguments);
        let head = Arc::unwrap_or_clone(head);
        let trace_id = head.trace_id();
        let partition = Partition::for_call(head.tenant, head.thread.as_ref(), head.id);
        let outcome = Outcome {
            id: head.id,
            tool: head.tool,
            thread: head.thread.clone(),
            model_call: head.model_call,
            status,
            effect,
            output: Value::Null,
            content: artifacts,
            error: error.map(|error| *error),
            attempts,
            replayed: false,
            cached,
            durability: WriteDurability::Durable,
            approval: None,
            trace_id,
            queued,
            duration,
            timing,
            started_at: head.arrived_at,
            ended_at,
        };
        let record = CallRecord {
            id: head.id,
            tool,
            caller: head.caller,
            thread: head.thread,
            run: head.run,
            key: None,
            arguments,
            status,
            approval: None,
            external_until: None,
            trace_id,
            opened_at: head.arrived_at,
            outcome: Some(outcome),
            opening: None,
        };
        match record.thread {
            Some(_) => {
                let batch = threads.entry(partition).or_default();
                batch.records.push(record);
                batch.weight_kib += weight_kib;
            }
            None => without_thread.push((partition, RecordBatch { records: vec![record], weight_kib })),
        }
    }
    without_thread.into_iter().chain(threads)
}

//! Exports all data of a thread, in parts of a bounded size.
//!
//! In: a thread. Out: a stream of parts, in the order of the members of `ThreadExport`; or all of them as one value.

use std::{mem, vec};

use futures_util::{TryStreamExt, stream};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use toolhub_core::{
    CallQuery, CallQueryError, CallRecord, StateError, Stream, ThreadInfo,
    backend::StoreError,
    ids::{RunId, Tenant, ThreadId},
};

use super::AgentService;
use crate::{record::RunRecord, run_store::StoredMessage};

/// Largest number of items in one part.
const PART_SIZE: usize = 500;

/// All stored data of a thread.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ThreadExport {
    /// The thread.
    pub thread: Option<ThreadInfo>,
    /// Its conversation, the oldest message first.
    pub messages: Vec<StoredMessage>,
    /// Its runs, the newest first; secrets in the arguments of external calls are redacted.
    pub runs: Vec<RunRecord>,
    /// Its calls, the newest first; secrets in their arguments are redacted.
    pub calls: Vec<CallRecord>,
    /// The statuses of its tools, and which have succeeded.
    pub tool_states: Value,
    /// The states of its tools, one object for each context.
    pub states: Vec<Value>,
}

/// A part of an export. Every list has at least one part, and the last part of a list may be empty.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ExportPart {
    /// The thread.
    Thread(Option<ThreadInfo>),
    /// The next messages.
    Messages(Vec<StoredMessage>),
    /// The next runs.
    Runs(Vec<RunRecord>),
    /// The next calls.
    Calls(Vec<CallRecord>),
    /// The statuses of its tools.
    ToolStates(Value),
    /// The next states.
    States(Vec<Value>),
}

/// What an export reads next.
enum Stage {
    Thread,
    /// The messages after this one.
    Messages(Option<u64>),
    /// The runs before this one.
    Runs(Option<RunId>),
    /// The calls from this cursor on.
    Calls(Option<String>),
    ToolStates,
    /// The states are read when the first part of them is needed.
    States(Option<vec::IntoIter<String>>),
    End,
}

struct Export {
    service: AgentService,
    tenant: Tenant,
    thread: ThreadId,
    stage: Stage,
}

impl AgentService {
    /// Exports all data of a thread. [`delete_thread`](Self::delete_thread) deletes the same data.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn export(&self, tenant: &Tenant, thread: &ThreadId) -> Result<ThreadExport, StoreError> {
        let empty = ThreadExport {
            thread: None,
            messages: Vec::new(),
            runs: Vec::new(),
            calls: Vec::new(),
            tool_states: Value::Null,
            states: Vec::new(),
        };
        let add = async |mut export: ThreadExport, part| {
            match part {
                ExportPart::Thread(thread) => export.thread = thread,
                ExportPart::Messages(messages) => export.messages.extend(messages),
                ExportPart::Runs(runs) => export.runs.extend(runs),
                ExportPart::Calls(calls) => export.calls.extend(calls),
                ExportPart::ToolStates(states) => export.tool_states = states,
                ExportPart::States(states) => export.states.extend(states),
            }
            Ok(export)
        };
        self.export_parts(tenant, thread).try_fold(empty, add).await
    }

    /// The same data in parts, so that only one of them is in memory. A change during the export may show in later parts.
    pub fn export_parts(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
    ) -> impl Stream<Item = Result<ExportPart, StoreError>> + Send + 'static {
        let (service, tenant, thread) = (self.clone(), tenant.clone(), thread.clone());
        let export = Export { service, tenant, thread, stage: Stage::Thread };
        stream::try_unfold(export, |mut export| async move {
            let part = export.next_part().await?;
            Ok(part.map(|part| (part, export)))
        })
    }
}

impl Export {
    /// The next part; `None` at the end.
    async fn next_part(&mut self) -> Result<Option<ExportPart>, StoreError> {
        let Self { service, tenant, thread, .. } = self;
        let hub = &service.0.hub;
        let (part, next) = match mem::replace(&mut self.stage, Stage::End) {
            Stage::Thread => (ExportPart::Thread(hub.thread(tenant, thread).await?), Stage::Messages(None)),
            Stage::Messages(after) => {
                let messages = service.messages(tenant, thread, PART_SIZE, after).await?;
                let next = messages.last().map_or(Stage::Runs(None), |last| Stage::Messages(Some(last.seq)));
                (ExportPart::Messages(messages), next)
            }
            Stage::Runs(before) => {
                let mut runs = service.runs(tenant, thread, PART_SIZE, before).await?;
                let external =
                    runs.iter_mut().flat_map(|run| &mut run.calls).filter_map(|call| call.arguments.as_mut());
                external.for_each(|arguments| hub.redact(arguments));
                let next = runs.last().map_or(Stage::Calls(None), |last| Stage::Runs(Some(last.id)));
                (ExportPart::Runs(runs), next)
            }
            Stage::Calls(cursor) => {
                let query =
                    CallQuery { thread: Some(thread.clone()), limit: PART_SIZE, cursor, ..CallQuery::default() };
                let page = hub.calls(tenant, &query).await.map_err(|error| match error {
                    CallQueryError::Store(error) => error,
                    other => StoreError::Unavailable(other.to_string()),
                })?;
                let next = page.next.map_or(Stage::ToolStates, |next| Stage::Calls(Some(next)));
                (ExportPart::Calls(page.calls), next)
            }
            Stage::ToolStates => {
                let text = hub.serialize_tool_states(tenant, thread).await;
                let text = text.map_err(|error| StoreError::Unavailable(error.operator))?;
                (ExportPart::ToolStates(parse(&text)), Stage::States(None))
            }
            Stage::States(lines) => {
                let mut lines = match lines {
                    Some(lines) => lines,
                    None => read_states(service, tenant, thread).await?,
                };
                let states = Vec::from_iter(lines.next().map(|line| parse(&line)));
                let next = if states.is_empty() { Stage::End } else { Stage::States(Some(lines)) };
                (ExportPart::States(states), next)
            }
            Stage::End => return Ok(None),
        };
        self.stage = next;
        Ok(Some(part))
    }
}

/// The states of a thread, each as JSON text.
async fn read_states(
    service: &AgentService,
    tenant: &Tenant,
    thread: &ThreadId,
) -> Result<vec::IntoIter<String>, StoreError> {
    let text = service.0.hub.state().export(tenant, Some(thread)).await.map_err(|error| match error {
        StateError::Store(error) => error,
        other => StoreError::Unavailable(other.to_string()),
    })?;
    Ok(text.lines().map(String::from).collect::<Vec<_>>().into_iter())
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}

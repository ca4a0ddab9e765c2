//! What tasks ask their clients, and the answers, between the nodes of a hub.
//!
//! In: a task whose call waits on another node; requests of other nodes about tasks that wait here. Out: what the task asks for, and whether
//! its node took the answers.

use std::{sync::Arc, time::Duration};

use rmcp::{ErrorData, model::InputRequests};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use toolhub_core::{
    CallRecord, NodeRequestError, ToolHub,
    clock::Timestamp,
    ids::{CallId, Tenant},
};

use super::{
    super::{Calls, cancelled, store_fault},
    InteractiveTasks,
};
use crate::mcp::request::McpContext;

const QUESTIONS_KIND: &str = "mcp.task.questions";
const ANSWER_KIND: &str = "mcp.task.answer";
/// How long a client that looks a task up waits for what its node says. The next look tries again.
const QUESTIONS_TIMEOUT: Duration = Duration::from_secs(5);

/// What the tool of a task asks its client for.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Questions {
    pub(super) requests: InputRequests,
    /// When the call last began or ceased to wait for answers.
    pub(super) changed_at: Option<Timestamp>,
}

/// A task, and the answers of its client if it has any.
#[derive(Serialize, Deserialize)]
struct TaskRequest {
    id: CallId,
    tenant: Tenant,
    #[serde(default)]
    answers: Map<String, Value>,
}

/// Lets other nodes ask and answer the tasks that wait here.
pub(in crate::mcp::call) fn answer_other_nodes(hub: &ToolHub, tasks: &Arc<InteractiveTasks>) {
    let on = |kind, answer: fn(&InteractiveTasks, TaskRequest) -> Value| {
        let tasks = Arc::downgrade(tasks);
        hub.on_node_request(kind, move |body| {
            let tasks = tasks.upgrade();
            async move {
                let (Some(tasks), Ok(request)) = (tasks, serde_json::from_value(body)) else { return Value::Null };
                answer(&tasks, request)
            }
        });
    };
    on(QUESTIONS_KIND, |tasks, TaskRequest { id, tenant, .. }| json!(tasks.questions(id, &tenant)));
    on(ANSWER_KIND, |tasks, TaskRequest { id, tenant, answers }| json!(tasks.answer(id, &tenant, answers)));
}

impl Calls {
    /// What a task of another node asks for; nothing while that node does not answer.
    pub(super) async fn questions_elsewhere(
        &self,
        record: &CallRecord,
        context: &McpContext,
    ) -> Result<Questions, ErrorData> {
        let asked = self.ask_about_task(QUESTIONS_KIND, record, Map::new(), context);
        let Ok(questions) = tokio::time::timeout(QUESTIONS_TIMEOUT, asked).await else {
            return Ok(Questions::default());
        };
        Ok(questions?.flatten().unwrap_or_default())
    }

    /// Gives the answers to a task of another node. Returns whether that took them.
    pub(super) async fn answer_elsewhere(
        &self,
        record: &CallRecord,
        answers: Map<String, Value>,
        context: &McpContext,
    ) -> Result<bool, ErrorData> {
        let is_taken: Option<bool> = self.ask_about_task(ANSWER_KIND, record, answers, context).await?;
        Ok(is_taken == Some(true))
    }

    /// Asks the node that runs a task; `None` if there is none or it cannot say.
    async fn ask_about_task<T: DeserializeOwned>(
        &self,
        kind: &'static str,
        record: &CallRecord,
        answers: Map<String, Value>,
        context: &McpContext,
    ) -> Result<Option<T>, ErrorData> {
        let (id, tenant) = (record.id, context.request.principal.tenant.clone());
        let node = self.hub.node_of_call(&tenant, record.thread.as_ref(), id).await.map_err(store_fault)?;
        let Some(node) = node else { return Ok(None) };
        let body = json!(TaskRequest { id, tenant, answers });
        let answer = tokio::select! {
            answer = self.hub.ask_node(&node, kind, body) => answer,
            () = context.cancelled.cancelled() => return Err(cancelled()),
        };
        match answer {
            Ok(answer) => Ok(serde_json::from_value(answer).ok()),
            Err(NodeRequestError::Store(error)) => Err(store_fault(error)),
            Err(error) => {
                tracing::debug!(%error, %node, task = %record.id, "the node of a task did not answer");
                Ok(None)
            }
        }
    }
}

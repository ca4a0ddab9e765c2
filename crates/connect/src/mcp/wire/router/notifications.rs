//! Notifications of a server: which call, list or request each belongs to.
//!
//! In: the method and the parameters of a notification. Out: updates to the call it belongs to, changes of lists, log lines, and what
//! `rmcp` has to see of it.

use std::time::Duration;

use rmcp::model::{RequestId, ServerJsonRpcMessage};
use serde_json::value::RawValue;

use super::{
    super::{
        exchange::Exchange,
        forward::typed,
        message::{Violation, number},
        notification::{Acknowledged, Cancelled, LogMessage, Progress, ResourceUpdated, clip, read},
        updates::Update,
    },
    MAX_PARAMS_BYTES, Origin, Router,
};
use crate::mcp::era::Era;

/// Longest URI of a resource.
const MAX_URI_BYTES: usize = 4096;
/// For so long after a call was cancelled, a log line may still belong to that call, unless it was answered. Shorter than for a question: a
/// log line asks for nothing.
const CANCELLED_CALL_LOGS: Duration = Duration::from_secs(3);

impl Router {
    /// Handles a notification of the server. Returns what `rmcp` has to see of it.
    pub(super) fn notified(
        &self,
        method: &str,
        params: Option<&RawValue>,
        text: &str,
        origin: Origin,
    ) -> Result<Option<ServerJsonRpcMessage>, Violation> {
        let params = params.map(RawValue::get).filter(|params| params.len() <= MAX_PARAMS_BYTES);
        match method {
            "notifications/progress" => {
                if let Some(progress) = read::<Progress>(params) {
                    self.progressed(progress);
                }
            }
            "notifications/message" => {
                if let Some(message) = read::<LogMessage<'_>>(params) {
                    self.logged(&message, origin);
                }
            }
            "notifications/tools/list_changed" => self.list_changes.send_modify(|changes| changes.tools += 1),
            "notifications/prompts/list_changed" => self.list_changes.send_modify(|changes| changes.prompts += 1),
            "notifications/resources/list_changed" => self.list_changes.send_modify(|changes| changes.resources += 1),
            "notifications/resources/updated" => {
                if let Some(updated) = read::<ResourceUpdated>(params).filter(|it| it.uri.len() <= MAX_URI_BYTES) {
                    self.updated_resources.add(updated.uri);
                }
            }
            "notifications/subscriptions/acknowledged" => {
                let listens = read::<Acknowledged>(params).and_then(|ack| number(&ack.meta.subscription_id));
                if listens.is_some_and(|id| self.lock().pending.get(id).is_some_and(|request| request.is_listen)) {
                    return typed(text).map(Some);
                }
            }
            "notifications/cancelled" => {
                if let Some(cancelled) = read::<Cancelled>(params) {
                    return self.cancelled_by_server(&cancelled.request_id, text);
                }
            }
            _ => {}
        }
        Ok(None)
    }

    fn progressed(&self, progress: Progress) {
        let call =
            number(&progress.progress_token).and_then(|token| self.lock().pending.by_token(token)?.exchange.clone());
        if let Some(updates) = call.as_ref().and_then(Exchange::updates) {
            let message = progress.message.map(|text| self.settings.secrets.named.text(clip(&text)).into_owned());
            updates.push(Update::Progress { done: progress.progress, total: progress.total, message });
        }
    }

    fn logged(&self, message: &LogMessage<'_>, origin: Origin) {
        let data = message.data.map_or("", RawValue::get);
        let text = serde_json::from_str::<String>(data).unwrap_or_else(|_| data.to_owned());
        let (text, level) = (clip(&text), clip(&message.level));
        let logger = message.logger.as_deref().map(|logger| format!(" {}", clip(logger))).unwrap_or_default();
        let secrets = &self.settings.secrets;
        self.settings.logs.push(secrets.all.text(format!("[{level}{logger}] {text}")).into_owned());
        let call = match origin {
            // On a pipe a log message names no request.
            Origin::Pipe => self.lock().only_call(CANCELLED_CALL_LOGS).cloned(),
            Origin::Stream(id) => self.lock().pending.get(id).and_then(|request| request.exchange.clone()),
            Origin::Unassociated => None,
        };
        if let Some(updates) = call.as_ref().and_then(Exchange::updates) {
            updates.push(Update::Log { level, text: secrets.named.text(text).into_owned() });
        }
    }

    /// The server ends a subscription, or withdraws a question.
    fn cancelled_by_server(&self, id: &RequestId, text: &str) -> Result<Option<ServerJsonRpcMessage>, Violation> {
        let mut state = self.lock();
        let listens = number(id).filter(|id| state.pending.get(*id).is_some_and(|request| request.is_listen));
        if let Some(id) = listens.filter(|_| self.settings.era == Era::Modern) {
            state.cancel(id);
            return typed(text).map(Some);
        }
        state.open_questions.remove(id);
        Ok(None)
    }
}

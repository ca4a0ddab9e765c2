//! Restores what a server does not know: the session of a client, its thread, and the headers of a tool's arguments.
//!
//! A server whose store is in memory knows neither session nor thread of the one before it.

use serde_json::{Value, json};
use toolhub_net::{HeaderMap, Method, Response};

use super::{
    bridge::Bridge,
    exchange::{Refusal, read_text},
    message::Message,
};
use crate::failure::Failure;

impl Bridge {
    /// Opens the session again, unless another task did since `generation`.
    ///
    /// # Errors
    /// When the server refuses or is gone.
    pub(super) async fn renew_session(&self, generation: u64) -> Result<(), Failure> {
        let _renewal = self.session.renewal.lock().await;
        let Some(initialize) = self.session.initialize().filter(|_| self.session.generation() == generation) else {
            return Ok(());
        };
        let failed = |reason: String| Failure::new("unreachable", format!("cannot open the session again: {reason}"));
        let sent = self.endpoint.send(Method::POST, initialize.clone(), HeaderMap::new()).await;
        let response = sent.map_err(|unanswered| failed(unanswered.reason))?;
        let (status, headers) = (response.status, response.headers.clone());
        let text = read_text(response).await.map_err(failed)?;
        if !status.is_success() {
            return Err(failed(Refusal::read(status, &text).error["message"].to_string()));
        }
        self.session.opened(&initialize, &headers, &text);
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        if let Ok(initialized) = Message::parse(initialized.into()) {
            let _ = self.post(&initialized).await;
        }
        Ok(())
    }

    /// Recreates the thread or the session that a server does not know.
    ///
    /// # Errors
    /// When that is not possible.
    pub(super) async fn recover_from_not_found(&self, response: Response, generation: u64) -> Result<(), Failure> {
        let status = response.status;
        let text = read_text(response).await.unwrap_or_default();
        let refusal = Refusal::read(status, &text);
        match (refusal.code.as_str(), &self.thread) {
            ("session_not_found", _) => self.renew_session(generation).await,
            ("thread_not_found", Some(thread)) => self.hub.create_thread(thread).await,
            _ => Err(Failure::new(&refusal.code, refusal.error["message"].to_string())),
        }
    }

    /// Reads the list of tools, for the headers of a call.
    pub(super) async fn learn_tools(&self, call: &Message) {
        let call: Value = serde_json::from_slice(&call.text).unwrap_or_default();
        let mut meta = call["params"]["_meta"].clone();
        if let Some(meta) = meta.as_object_mut() {
            meta.retain(|name, _| name.starts_with("io.modelcontextprotocol/"));
        }
        let list = json!({"jsonrpc": "2.0", "id": "toolhub-list", "method": "tools/list", "params": {"_meta": meta}});
        let Ok(list) = Message::parse(list.to_string().into()) else { return };
        if let Ok(response) = self.post(&list).await
            && let Ok(text) = read_text(response).await
        {
            self.param_headers.learn(&text);
        }
    }
}

//! Requests of other crates to a certain node, and the answers of this one.
//!
//! In: the id of a node and a request; handlers of the crates above. Out: the answer of that node. A request whose asker gives up is
//! cancelled; one to a node that dies is not answered.

use std::{pin::pin, sync::Arc};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{ToolHub, requests::POLL_INTERVALS};
use crate::{
    engine::Engine,
    requests::{self, NodeAnswer, NodeRequest, NodeRequestKey},
};
use toolhub_storage::backend::{RowKey, StoreError};

/// Why a node has not answered a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeRequestError {
    /// The node has left, is dead, or never was.
    #[error("the node is gone")]
    Gone,
    /// The node has no such requests: it runs another version, or another program.
    #[error("the node does not know this request")]
    Unsupported,
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Answers a request if it is to this node, and wakes those that wait for an answer.
pub(super) fn row_changed(engine: &Arc<Engine>, key: RowKey) {
    engine.node_requests.notify();
    let request = NodeRequestKey::parse(&key).filter(|request| request.node == *engine.nodes.own_id());
    if let Some(request) = request
        && let Some(cancel) = engine.node_requests.begin(&key.id)
    {
        // On a task of its own: an answer may take long.
        engine.runtime.spawn(answer(engine.clone(), request, key, cancel));
    }
}

async fn answer(engine: Arc<Engine>, request: NodeRequestKey, key: RowKey, cancel: CancellationToken) {
    let (store, clock) = (&*engine.services.store, &engine.services.clock);
    match requests::load_node_request(store, &key, clock.now()).await {
        Ok(Some((NodeRequest { body, answer: None }, version))) => {
            let handler = engine.node_requests.get(&request.kind);
            let answer = match handler {
                None => Some(NodeAnswer::Unsupported),
                Some(handle) => cancel.run_until_cancelled(handle(body)).await.map(NodeAnswer::Done),
            };
            // Without an answer nobody waits for it any more.
            if answer.is_some() {
                let answered = NodeRequest { body: Value::Null, answer };
                if let Err(error) =
                    requests::put_node_request(store, key.clone(), &answered, Some(version), clock.now()).await
                {
                    tracing::debug!(%error, kind = %request.kind, "answer to another node not written");
                }
            }
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, kind = %request.kind, "request of another node not read"),
    }
    engine.node_requests.end(&key.id);
}

impl ToolHub {
    /// Answers requests of this kind of other nodes, from now on. The answer is dropped when the asker gives up.
    #[doc(hidden)]
    pub fn on_node_request<F: Future<Output = Value> + Send + 'static>(
        &self,
        kind: &'static str,
        answer: impl Fn(Value) -> F + Send + Sync + 'static,
    ) {
        self.engine.node_requests.set(kind, Arc::new(move |body| Box::pin(answer(body))));
    }

    /// Asks another node, and waits for its answer for as long as it is alive. Dropping the future withdraws the request.
    ///
    /// # Errors
    /// When the node is gone or does not know the request, or the store does not answer.
    #[doc(hidden)]
    pub async fn ask_node(&self, node: &str, kind: &'static str, body: Value) -> Result<Value, NodeRequestError> {
        let engine = &self.engine;
        if engine.nodes.is_exclusive() || !engine.nodes.is_alive(node).await? {
            return Err(NodeRequestError::Gone);
        }
        let (store, key) = (&*engine.services.store, NodeRequestKey::new(node, kind).row());
        // Also if its answer is lost: then the row may be there.
        let _withdrawal = Withdrawal { engine, key: key.clone() };
        requests::put_node_request(store, key.clone(), &NodeRequest { body, answer: None }, None, self.now()).await?;
        let (mut delay, longest) = POLL_INTERVALS;
        loop {
            let mut changed = pin!(engine.node_requests.changed());
            // Before the row is read: a change meanwhile counts.
            changed.as_mut().enable();
            match requests::load_node_request(store, &key, self.now()).await? {
                Some((NodeRequest { answer: Some(NodeAnswer::Done(answer)), .. }, _)) => return Ok(answer),
                Some((NodeRequest { answer: Some(NodeAnswer::Unsupported), .. }, _)) => {
                    return Err(NodeRequestError::Unsupported);
                }
                Some(_) if engine.nodes.was_alive(node) => {}
                Some(_) | None => return Err(NodeRequestError::Gone),
            }
            let _ = tokio::time::timeout(delay, changed).await;
            delay = (2 * delay).min(longest);
        }
    }
}

/// Removes a request when its asker has the answer or has given up.
struct Withdrawal<'a> {
    engine: &'a Arc<Engine>,
    key: RowKey,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        let (engine, key) = (self.engine.clone(), self.key.clone());
        self.engine.runtime.spawn(async move {
            requests::remove(&*engine.services.store, key, engine.services.clock.now()).await;
        });
    }
}

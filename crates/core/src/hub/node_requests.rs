//! Requests of other crates to a certain node, and the answers of this one.
//!
//! In: the id of a node and a request; handlers of the crates above. Out: the answer of that node. A request whose asker gives up is
//! cancelled, and so is one whose asker dies; one to a node that dies is not answered. While the store is away, both sides wait for it.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use serde_json::Value;

use super::{ToolHub, requests::POLL_INTERVALS};
use crate::{
    engine::Engine,
    requests::{self, NodeAnswer, NodeRequest, NodeRequestKey},
};
use toolhub_storage::backend::{RowKey, RowVersion, StoreError};

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
    /// The node could not answer.
    #[error("the node could not answer: {0}")]
    Failed(String),
    /// The store does not answer; nothing was asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Answers a request if it is to this node, and wakes the task that waits for its answer.
pub(super) fn row_changed(engine: &Arc<Engine>, key: RowKey) {
    engine.node_requests.notify(&key.id);
    let request = NodeRequestKey::parse(&key).filter(|request| request.node == *engine.nodes.own_id());
    if let Some(request) = request
        && let Some(cancel) = engine.node_requests.begin(&key.id)
    {
        // On a task of its own: an answer may take long.
        let engine = engine.clone();
        engine.runtime.clone().spawn(async move {
            cancel.run_until_cancelled(answer(&engine, &request, &key)).await;
            engine.node_requests.end(&key.id);
        });
    }
}

/// Answers a request, once.
async fn answer(engine: &Arc<Engine>, request: &NodeRequestKey, key: &RowKey) {
    let (store, clock) = (&*engine.services.store, &engine.services.clock);
    let loaded = retry(|| requests::load_node_request(store, key, clock.now())).await;
    let Ok(Some((NodeRequest { mut body, asker, answer: None }, version))) = loaded else {
        if let Err(error) = loaded {
            tracing::warn!(%error, kind = %request.kind, "request of another node not read");
        }
        return;
    };
    if let Some(asker) = &asker
        && let Ok(false) = is_alive(engine, asker).await
    {
        requests::remove(store, key.clone(), clock.now()).await;
        return;
    }
    let answer = match (engine.node_requests.get(&request.kind), engine.services.sealer.unseal(&mut body, &key.id)) {
        (None, _) => NodeAnswer::Unsupported,
        (Some(_), Err(_)) => NodeAnswer::Failed(
            "it cannot unseal the secrets; the nodes have different `store.redis.seal_secret`".into(),
        ),
        (Some(handle), Ok(())) => match AssertUnwindSafe(handle(body)).catch_unwind().await {
            Ok(answer) => NodeAnswer::Done(answer),
            Err(_) => NodeAnswer::Failed("it panicked".into()),
        },
    };
    let answered = NodeRequest { body: Value::Null, asker, answer: Some(answer) };
    let put = || requests::put_node_request(store, key.clone(), &answered, Some(version), clock.now());
    if let Err(error) = retry(put).await {
        // It was withdrawn, or is written already.
        tracing::debug!(%error, kind = %request.kind, "answer to another node not written");
    }
}

/// Whether a node is alive; the store is asked only about one that was not at the last look.
async fn is_alive(engine: &Engine, node: &str) -> Result<bool, StoreError> {
    Ok(engine.nodes.was_alive(node) || engine.nodes.is_alive(node).await?)
}

/// Cancels and removes the requests of askers that are gone, if this node was asked or the node that was asked is gone, too. One whose
/// asker cannot withdraw it would be worked on, and keep its answer in the store.
pub(super) async fn drop_orphans(engine: &Arc<Engine>) -> Result<(), StoreError> {
    let (store, clock) = (&*engine.services.store, &engine.services.clock);
    for (key, request, asker) in requests::node_requests(store, clock.now()).await? {
        let Some(asker) = asker else { continue };
        let is_ours = request.node == *engine.nodes.own_id() || !is_alive(engine, &request.node).await?;
        if is_ours && !is_alive(engine, &asker).await? {
            engine.node_requests.cancel(&key.id);
            requests::remove(store, key, clock.now()).await;
        }
    }
    Ok(())
}

/// Tries again while the store does not answer.
pub(super) async fn retry<T, F: Future<Output = Result<T, StoreError>>>(
    mut attempt: impl FnMut() -> F,
) -> Result<T, StoreError> {
    loop {
        match attempt().await {
            Err(StoreError::Unavailable(_) | StoreError::Unknown(_)) => tokio::time::sleep(POLL_INTERVALS.1).await,
            result => return result,
        }
    }
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

    /// Asks another node, and waits for its answer for as long as it is alive. Dropping the future withdraws the request. Secrets in it
    /// are sealed on their way.
    ///
    /// # Errors
    /// When the node is gone, does not know the request or fails, or the store does not answer at first.
    #[doc(hidden)]
    pub async fn ask_node(&self, node: &str, kind: &'static str, mut body: Value) -> Result<Value, NodeRequestError> {
        let engine = &self.engine;
        if engine.nodes.is_exclusive() || !is_alive(engine, node).await? {
            return Err(NodeRequestError::Gone);
        }
        let (store, key) = (&*engine.services.store, NodeRequestKey::new(node, kind).row());
        engine.services.sealer.seal(&mut body, &key.id);
        let changed = engine.node_requests.wait(&key.id);
        // Also if its answer is lost: then the row may be there.
        let _withdrawal = Withdrawal { engine, key: key.clone() };
        let request = NodeRequest { body, asker: Some(engine.nodes.own_id().clone()), answer: None };
        match requests::put_node_request(store, key.clone(), &request, None, self.now()).await {
            Ok(()) | Err(StoreError::Unknown(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let (mut delay, longest) = POLL_INTERVALS;
        loop {
            let _ = tokio::time::timeout(delay, changed.changed()).await;
            delay = (2 * delay).min(longest);
            let found = match requests::load_node_request(store, &key, self.now()).await {
                Ok(found) => found,
                Err(StoreError::Unavailable(_) | StoreError::Unknown(_)) => continue,
                Err(error) => return Err(error.into()),
            };
            return match found.map(|(request, _): (_, RowVersion)| request.answer) {
                Some(Some(NodeAnswer::Done(answer))) => Ok(answer),
                Some(Some(NodeAnswer::Unsupported)) => Err(NodeRequestError::Unsupported),
                Some(Some(NodeAnswer::Failed(reason))) => Err(NodeRequestError::Failed(reason)),
                Some(None) if engine.nodes.was_alive(node) => continue,
                Some(None) | None => Err(NodeRequestError::Gone),
            };
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

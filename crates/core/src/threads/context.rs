//! Public handle to a thread's live tool instances.
//!
//! In: a tenant and a thread. Out: the instances of the thread, and a way to close them. Only calls create and use
//! instances.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::InstancePool;
use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    timestamp::Timestamp,
    tool::ToolName,
};

/// Access to the instances of all threads.
#[derive(Clone)]
pub struct Threads(pub(crate) Arc<InstancePool>);

impl Threads {
    /// The thread's context. Allocates nothing; only a call creates an instance.
    #[must_use]
    pub fn get_or_create(&self, tenant: &Tenant, thread: &ThreadId) -> ThreadContext {
        ThreadContext { owner: ThreadKey::new(tenant, thread), pool: self.0.clone() }
    }

    /// Closes all instances of a thread; returns the tools they belonged to. Waits for them with a timeout; an instance
    /// that is in use is closed when its call ends.
    pub async fn cleanup(&self, tenant: &Tenant, thread: &ThreadId) -> Vec<ToolName> {
        self.get_or_create(tenant, thread).cleanup_all().await
    }

    /// The number of instances in all threads.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.0.instance_count()
    }
}

/// The live instances of one thread.
#[derive(Clone)]
pub struct ThreadContext {
    owner: ThreadKey,
    pool: Arc<InstancePool>,
}

/// Summary of a live instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InstanceInfo {
    /// The tool whose instance it is.
    pub tool: ToolName,
    /// When it was created.
    #[serde(rename = "madeAt")]
    pub created: Timestamp,
    /// Whether a call uses it or waits for it.
    pub in_use: bool,
}

impl ThreadContext {
    /// The thread's live instance of a tool, if there is one. Does not create one.
    #[must_use]
    pub fn get(&self, tool: &str) -> Option<InstanceInfo> {
        self.pool.instance_info(&self.owner, tool)
    }

    /// Closes the instance of one tool; returns whether there was one. An instance in use is closed when its call ends;
    /// a new call meanwhile gets a new instance.
    pub async fn cleanup(&self, tool: &str) -> bool {
        !self.pool.close_instances(&self.owner, Some(tool), CLEANUP_REASON).await.is_empty()
    }

    /// Closes all instances of the thread; returns the tools they belonged to.
    pub async fn cleanup_all(&self) -> Vec<ToolName> {
        self.pool.close_instances(&self.owner, None, CLEANUP_REASON).await
    }
}

const CLEANUP_REASON: &str = "the thread was cleaned up";

//! The live side of a thread, as the hub's owner sees it.
//!
//! In: a tenant and a thread. Out: which instances live there, and a way to have them closed. Instances are made and used
//! by calls only.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::InstancePool;
use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    timestamp::Timestamp,
    tool::ToolName,
};

/// The contexts of all threads.
#[derive(Clone)]
pub struct Threads(pub(crate) Arc<InstancePool>);

impl Threads {
    /// The thread's context. It costs nothing until a call makes an instance there.
    #[must_use]
    pub fn get_or_create(&self, tenant: &Tenant, thread: &ThreadId) -> ThreadContext {
        ThreadContext { owner: ThreadKey::new(tenant, thread), pool: self.0.clone() }
    }

    /// Closes all instances of a thread; names the tools they belonged to. One that is in use is closed when its call ends,
    /// and is waited for, within a bound.
    pub async fn cleanup(&self, tenant: &Tenant, thread: &ThreadId) -> Vec<ToolName> {
        self.get_or_create(tenant, thread).cleanup_all().await
    }

    /// How many instances there are, in all threads.
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

/// A live instance, from outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InstanceInfo {
    /// The tool whose instance it is.
    pub tool: ToolName,
    /// When it was made.
    #[serde(rename = "madeAt")]
    pub created: Timestamp,
    /// Whether a call uses it, or waits to.
    pub in_use: bool,
}

impl ThreadContext {
    /// The thread's live instance of a tool, if there is one. Nothing is made by asking.
    #[must_use]
    pub fn get(&self, tool: &str) -> Option<InstanceInfo> {
        self.pool.instance_info(&self.owner, tool)
    }

    /// Closes the instance of one tool; says whether there was one. If it is in use, it is closed when its call ends; a call
    /// that comes meanwhile gets a new one.
    pub async fn cleanup(&self, tool: &str) -> bool {
        !self.pool.close_instances(&self.owner, Some(tool), CLEANUP_REASON).await.is_empty()
    }

    /// Closes all instances of the thread; names the tools they belonged to.
    pub async fn cleanup_all(&self) -> Vec<ToolName> {
        self.pool.close_instances(&self.owner, None, CLEANUP_REASON).await
    }
}

const CLEANUP_REASON: &str = "the thread was cleaned up";

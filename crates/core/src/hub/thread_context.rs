//! Public handle to a thread's live tool instances.
//!
//! In: a tenant, a thread and a tool. Out: the instance, created on first use and lent exclusively or shared; a way to close
//! instances. An instance is created only by the pipeline, as for a call.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use tokio::sync::OwnedMutexGuard;

use super::ToolHub;
use crate::{
    handler::{Instance, SharedInstance, SharedInstanceGuard},
    reentrancy,
    threads::{InstanceCell, InstanceInfo, InstanceLease},
};
use toolhub_types::{
    error::{CallError, ErrorKind},
    ids::{Tenant, ThreadId, ThreadKey},
    tool::ToolName,
};

/// Number of attempts to get an instance that others close meanwhile.
const MAX_ATTEMPTS: usize = 5;
const CLEANUP_REASON: &str = "the thread was cleaned up";

/// Access to the instances of all threads.
#[derive(Clone)]
pub struct Threads(pub(super) ToolHub);

impl Threads {
    /// The thread's context. Allocates nothing; an instance is created when it is first used.
    #[must_use]
    pub fn get_or_create(&self, tenant: &Tenant, thread: &ThreadId) -> ThreadContext {
        ThreadContext { owner: ThreadKey::new(tenant, thread), hub: self.0.clone() }
    }

    /// Closes all instances of a thread; returns the tools they belonged to. Waits for them with a timeout; an instance
    /// that is in use is closed when its call ends.
    pub async fn cleanup(&self, tenant: &Tenant, thread: &ThreadId) -> Vec<ToolName> {
        self.get_or_create(tenant, thread).cleanup_all().await
    }

    /// The number of instances in all threads.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.0.engine.services.instances.instance_count()
    }
}

/// The live instances of one thread.
#[derive(Clone)]
pub struct ThreadContext {
    owner: ThreadKey,
    hub: ToolHub,
}

impl ThreadContext {
    /// The thread's instance of a tool, for exclusive use until the guard is dropped. Its factory creates it if there is none, as
    /// for a call; calls of the tool in this thread wait meanwhile.
    ///
    /// # Errors
    /// Like [`ToolHub::open_session`]; when a call uses the instance for longer than the tool's timeout, when the caller is itself a
    /// call that uses it, or when the tool has no instances of type `I`.
    pub async fn get<I: Instance>(&self, tool: &str) -> Result<InstanceGuard<I>, CallError> {
        for _ in 0..MAX_ATTEMPTS {
            let (lease, cell) = self.lease::<I>(tool).await?;
            let lock = self.lock_exclusive(tool, &lease, &cell).await?;
            if let Some(instance) = cell.take() {
                return Ok(InstanceGuard { instance: Some(instance), cell, _lock: lock, lease });
            }
        }
        Err(closed_meanwhile(tool))
    }

    /// The thread's shared instance of a tool. Its factory creates it if there is none, as for a call.
    ///
    /// # Errors
    /// Like [`ToolHub::open_session`]; or when the tool has no shared instances of type `I`.
    pub async fn get_shared<I: SharedInstance>(&self, tool: &str) -> Result<SharedInstanceGuard<I>, CallError> {
        for _ in 0..MAX_ATTEMPTS {
            let (lease, cell) = self.lease::<Arc<I>>(tool).await?;
            if let Some(instance) = cell.get_shared() {
                return Ok(SharedInstanceGuard::new(instance, lease, cell));
            }
        }
        Err(closed_meanwhile(tool))
    }

    /// The thread's live instance of a tool, if there is one. Does not create one.
    #[must_use]
    pub fn info(&self, tool: &str) -> Option<InstanceInfo> {
        self.hub.engine.services.instances.instance_info(&self.owner, tool)
    }

    /// The thread's live instances in this process, the oldest first.
    #[must_use]
    pub fn instances(&self) -> Vec<InstanceInfo> {
        self.hub.engine.services.instances.instance_infos(&self.owner)
    }

    /// Closes the instance of one tool; returns whether there was one. An instance in use is closed when its call ends;
    /// a new call meanwhile gets a new instance.
    pub async fn cleanup(&self, tool: &str) -> bool {
        !self.hub.engine.services.instances.close_instances(&self.owner, Some(tool), CLEANUP_REASON).await.is_empty()
    }

    /// Closes all instances of the thread; returns the tools they belonged to.
    pub async fn cleanup_all(&self) -> Vec<ToolName> {
        self.hub.engine.services.instances.close_instances(&self.owner, None, CLEANUP_REASON).await
    }

    /// A lease on the tool's instance, which is created if there is none.
    async fn lease<T: Send + 'static>(&self, tool: &str) -> Result<(InstanceLease, Arc<InstanceCell<T>>), CallError> {
        self.hub.open_session(tool, &self.owner.tenant, &self.owner.thread).await?;
        let lease = self.hub.engine.services.instances.find(&self.owner, tool).ok_or_else(|| {
            CallError::new(ErrorKind::ArgumentsInvalid).operator(format!("the tool `{tool}` has no instances"))
        })?;
        let cell = lease.cell::<T>().ok_or_else(|| {
            let text = format!("the instances of `{tool}` have another type than `{}`", std::any::type_name::<T>());
            CallError::new(ErrorKind::ArgumentsInvalid).operator(text)
        })?;
        Ok((lease, cell))
    }

    /// Waits until no call uses the instance, at most for the tool's timeout.
    async fn lock_exclusive<T: Send + 'static>(
        &self,
        tool: &str,
        lease: &InstanceLease,
        cell: &InstanceCell<T>,
    ) -> Result<OwnedMutexGuard<()>, CallError> {
        let timeout = self.hub.engine.registry.find(tool).map(|(tool, _)| tool.limits().timeout).unwrap_or_default();
        let lock =
            reentrancy::with_locks(vec![lease.lock_id()], tokio::time::timeout(timeout, cell.lock_owned())).await;
        match lock {
            Ok(Ok(lock)) => Ok(lock),
            Ok(Err(_)) => {
                let text = format!("another call used the instance of `{tool}` for {} ms", timeout.as_millis());
                Err(CallError::new(ErrorKind::Timeout).operator(text))
            }
            Err(reentrancy::Reentrant) => {
                let text =
                    format!("a call of `{tool}` that uses the instance asks for it again and would wait for itself");
                Err(CallError::new(ErrorKind::ArgumentsInvalid).operator(text))
            }
        }
    }
}

fn closed_meanwhile(tool: &str) -> CallError {
    let text = format!("the instance of `{tool}` was closed before it could be used; the hub has too many instances");
    CallError::new(ErrorKind::Overloaded).operator(text)
}

/// An instance lent for exclusive use. Dropping the guard returns it; calls of its tool in its thread wait until then.
pub struct InstanceGuard<I: Instance> {
    /// `Some` until this is dropped.
    instance: Option<I>,
    cell: Arc<InstanceCell<I>>,
    _lock: OwnedMutexGuard<()>,
    lease: InstanceLease,
}

impl<I: Instance> Deref for InstanceGuard<I> {
    type Target = I;
    fn deref(&self) -> &I {
        self.instance.as_ref().expect("the instance is taken only on drop")
    }
}

impl<I: Instance> DerefMut for InstanceGuard<I> {
    fn deref_mut(&mut self) -> &mut I {
        self.instance.as_mut().expect("the instance is taken only on drop")
    }
}

impl<I: Instance> Drop for InstanceGuard<I> {
    fn drop(&mut self) {
        let Some(instance) = self.instance.take() else { return };
        if std::thread::panicking() {
            // It may be in an inconsistent state; the next call gets a new one.
            drop(instance);
            self.lease.mark_lost("its user panicked");
        } else {
            self.cell.put(instance);
        }
    }
}

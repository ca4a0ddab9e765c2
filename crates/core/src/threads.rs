//! The live side of conversations: the instances that belong to each thread.
//!
//! In: a tenant and a thread. Out: its `ThreadContext`, made on first use. What a thread remembers durably is not here.

mod instances;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

pub(crate) use instances::ThreadContext;

use crate::{
    clock::Clock,
    events::{Events, News},
    ids::{Tenant, ThreadId},
    tool::ToolName,
};

/// Every thread with a live instance.
#[derive(Default)]
pub(crate) struct Threads(Mutex<HashMap<(Tenant, ThreadId), Arc<ThreadContext>>>);

impl Threads {
    /// The thread's context, made on first use.
    pub(crate) fn get_or_create(&self, tenant: &Tenant, thread: &ThreadId) -> Arc<ThreadContext> {
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        threads.entry((tenant.clone(), thread.clone())).or_default().clone()
    }

    /// Takes the contexts of these threads away.
    fn remove(&self, which: impl Fn(&Tenant, &ThreadId) -> bool) -> Vec<(Tenant, ThreadId, Arc<ThreadContext>)> {
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        threads.extract_if(|(tenant, thread), _| which(tenant, thread)).map(|((t, id), cx)| (t, id, cx)).collect()
    }

    /// Closes all instances of the chosen threads and forgets the threads' contexts.
    pub(crate) async fn cleanup(
        &self,
        which: impl Fn(&Tenant, &ThreadId) -> bool,
        events: &Events,
        clock: &dyn Clock,
        reason: &'static str,
    ) {
        for (tenant, thread, context) in self.remove(which) {
            for tool_name in context.cleanup_all().await {
                let news = News::ExecutorCleaned { tool_name, reason };
                events.tell_tenant(clock.now(), &tenant, Some(&thread), news);
            }
        }
    }

    /// Closes one tool's instance in every thread, as when the tool is removed.
    pub(crate) async fn cleanup_tool(&self, tool: &ToolName, events: &Events, clock: &dyn Clock) {
        let all: Vec<_> = {
            let threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            threads.iter().map(|(key, context)| (key.clone(), context.clone())).collect()
        };
        for ((tenant, thread), context) in all {
            if context.cleanup(tool).await {
                let news = News::ExecutorCleaned { tool_name: tool.clone(), reason: "the tool was removed" };
                events.tell_tenant(clock.now(), &tenant, Some(&thread), news);
            }
        }
    }
}

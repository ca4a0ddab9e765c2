//! `Debug` for types that hold functions, locks and channels: prints their identity, not their contents.

use std::fmt;

use crate::{
    events::Subscription,
    execution::{CallContext, Job, Tool},
    handler::{Instance, JsonState, SharedInstanceGuard, State},
    hub::{
        BatchRequest, CallHandle, CallRequest, HubBuilder, InstanceGuard, SourceHandle, ThreadContext, Threads, ToolHub,
    },
    registry::{Registry, ToolBuilder, Tools},
};
use toolhub_state::ToolState;

macro_rules! brief {
    ($($name:literal $this:ident: $type:ty { $($field:literal: $value:expr),* })*) => {$(
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $this = self;
                f.debug_struct($name)$(.field($field, &$value))*.finish_non_exhaustive()
            }
        }
    )*};
}

brief! {
    "ToolHub" hub: ToolHub { "tools": hub.tools().len() }
    "HubBuilder" _hub: HubBuilder {}
    "Registry" registry: Registry { "tools": registry.snapshot().len() }
    "Tools" tools: Tools { "tools": tools.len(), "revision": tools.revision() }
    "Tool" tool: Tool { "name": tool.definition.name, "kind": tool.definition.kind }
    "ToolBuilder" tool: ToolBuilder { "name": tool.name().ok() }
    "SourceHandle" source: SourceHandle { "name": source.name() }
    "CallRequest" call: CallRequest<'_> { "id": call.id() }
    "BatchRequest" _batch: BatchRequest<'_> {}
    "CallHandle" call: CallHandle { "id": call.id(), "tool": call.tool() }
    "CallContext" cx: CallContext { "call": cx.call_id(), "tool": cx.tool() }
    "Job" job: Job<'_> { "tool": job.tool.name }
    "Subscription" _events: Subscription {}
    "JsonState" state: JsonState { "parameter": state.parameter() }
    "Threads" threads: Threads { "instances": threads.instances() }
    "ThreadContext" _context: ThreadContext {}
}

impl<S: ToolState> fmt::Debug for State<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("name", &S::NAME).field("version", &self.version()).finish_non_exhaustive()
    }
}

impl<I: Instance> fmt::Debug for InstanceGuard<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstanceGuard").finish_non_exhaustive()
    }
}

impl<I: Send + Sync + 'static> fmt::Debug for SharedInstanceGuard<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInstanceGuard").finish_non_exhaustive()
    }
}

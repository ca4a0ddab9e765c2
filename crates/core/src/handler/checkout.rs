//! Loads the state of a tool for a running call, and records the use.

use crate::execution::CallContext;
use toolhub_state::{ContextId, LoadedContext, StateError};
use toolhub_types::error::ToolError;

/// Loads a context for the tool of a call, and marks the context as used.
pub(super) async fn check_out(cx: &CallContext, context: &ContextId) -> Result<LoadedContext, ToolError> {
    let (manager, tenant) = (&cx.services().state, cx.tenant());
    let load = async {
        let found = manager.check_out(tenant, context).await?;
        let writes = !cx.envelope().tool.definition.annotations.read_only;
        manager.record_use(tenant, context, &found, writes).await?;
        Ok::<_, StateError>(found)
    };
    load.await.map_err(|error| ToolError::operator_only(error.kind(), error.to_string()))
}

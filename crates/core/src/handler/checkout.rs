//! Takes the state of a tool out of its store, for the call that runs.

use crate::{
    execution::CallContext,
    state::{ContextId, LoadedContext, StateError},
};
use toolhub_types::error::ToolError;

/// What a context holds, for the tool of a call; from here on the call uses it.
pub(super) async fn check_out(cx: &CallContext, context: &ContextId) -> Result<LoadedContext, ToolError> {
    let (manager, tenant) = (&cx.services().state, cx.tenant());
    let taking = async {
        let found = manager.check_out(tenant, context).await?;
        let writes = !cx.envelope().tool.definition.annotations.read_only;
        manager.record_use(tenant, context, &found, writes).await?;
        Ok::<_, StateError>(found)
    };
    taking.await.map_err(|error| ToolError::operator_only(error.kind(), error.to_string()))
}

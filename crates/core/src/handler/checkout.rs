//! Takes the state of a tool out of its store, for the call that runs.

use crate::{
    execution::CallContext,
    state::{ContextId, Found, StateError},
};
use toolhub_types::error::ToolError;

/// What a context holds, for the tool of a call; from here on the call uses it.
pub(super) async fn check_out(cx: &CallContext, context: &ContextId) -> Result<Found, ToolError> {
    let (manager, tenant) = (&cx.services().state, cx.tenant());
    let taking = async {
        let found = manager.take_out(tenant, context).await?;
        let writes = !cx.envelope().tool.definition.annotations.read_only;
        manager.used(tenant, context, &found, writes).await?;
        Ok::<_, StateError>(found)
    };
    taking.await.map_err(|error| ToolError::hidden(error.kind(), error.to_string()))
}

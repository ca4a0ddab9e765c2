//! A placeholder plan for the open run of an agent that is no longer defined: the run can only fail.

use std::sync::Arc;

use smol_str::SmolStr;
use toolhub_core::{BoxFuture, Toolset, export::Format};

use crate::{
    definition::AgentDefinition,
    model::{Model, ModelError, ModelFault, Prompt, Reply, StreamSink},
};

/// The plan of an agent that is no longer defined. Its toolset is unknown, so it has none.
pub(super) fn removed_agent_plan(name: &SmolStr) -> Arc<AgentDefinition> {
    let none =
        Toolset::from_patterns::<SmolStr>([]).unwrap_or_else(|_| unreachable!("an empty list has no invalid pattern"));
    let plan = AgentDefinition::new(Arc::new(RemovedAgentModel(name.clone()))).toolset(none);
    Arc::new(AgentDefinition { is_removed: true, ..plan })
}

struct RemovedAgentModel(SmolStr);

impl Model for RemovedAgentModel {
    fn name(&self) -> &str {
        "none"
    }

    fn format(&self) -> Format {
        Format::OpenAi
    }

    fn ask<'a>(&'a self, _: Prompt<'a>, _: &'a StreamSink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let text = format!("the agent `{}` is no longer defined", self.0);
        Box::pin(async move { Err(ModelError::new(ModelFault::Refused, text)) })
    }
}

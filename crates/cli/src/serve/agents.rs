//! Builds the agents of a config and registers them.
//!
//! In: the resolved model, agents and toolsets. Out: definitions in the agent service. All plans are built before anything
//! changes, so that a config is applied completely or not at all.

use std::sync::Arc;

use toolhub::{
    Toolset,
    agent::{AgentDefinition, AgentService, Model, ToolExecution},
    server::NamedToolset,
};

use crate::config::{self, Agents, Execution, Llm};

/// The plans of all agents, by name.
pub(super) type AgentPlans = Vec<(String, AgentDefinition)>;

/// Builds the plans of all agents.
///
/// # Errors
/// When a model cannot be built.
pub(super) fn build_plans(agents: &Agents) -> Result<AgentPlans, String> {
    let Some(llm) = &agents.llm else { return Ok(AgentPlans::new()) };
    let default_model = llm.build_model(&llm.model)?;
    let plan_agent = |(name, agent): (&String, &config::Agent)| {
        let model = match &agent.model {
            Some(other) if *other != llm.model => llm.build_model(other)?,
            _ => default_model.clone(),
        };
        Ok((name.clone(), build_plan(agent, llm, model)?))
    };
    agents.agents.iter().map(plan_agent).collect()
}

/// Registers these agents, and removes all others.
pub(super) fn define(service: &AgentService, plans: AgentPlans) {
    let names: Vec<_> = plans.iter().map(|(name, _)| name.as_str().into()).collect();
    for (name, plan) in plans {
        service.define(name, plan);
    }
    service.retain_only(&names);
}

fn build_plan(agent: &config::Agent, llm: &Llm, model: Arc<dyn Model>) -> Result<AgentDefinition, String> {
    let tools = match &agent.tools {
        Some(globs) => Toolset::from_patterns(globs.iter().map(String::as_str))?,
        None => Toolset::all(),
    };
    let mut plan = AgentDefinition::new(model)
        .system_prompt(agent.system_prompt.as_str())
        .toolset(tools)
        .max_steps(agent.max_steps)
        .token_budget(agent.token_budget)
        .time_budget(agent.time_budget)
        .request_timeout(llm.request_timeout)
        .execution(match agent.execution {
            Execution::Internal(max_retries) => ToolExecution::Internal { max_retries },
            Execution::External(deadline) => ToolExecution::External { deadline },
        });
    if let Some(tokens) = agent.context_window {
        plan = plan.context_window(tokens.into());
    }
    Ok(plan)
}

/// The toolsets of a config, with the agents that use them.
pub(super) fn named_toolsets(agents: &Agents) -> Vec<NamedToolset> {
    let sets = agents.toolsets.iter().map(|(name, set)| {
        let users = agents.agents.iter().filter(|(_, agent)| agent.toolsets.contains(name));
        NamedToolset {
            name: name.clone(),
            description: set.description.clone(),
            tools: set.tools.clone(),
            agents: users.map(|(agent, _)| agent.clone()).collect(),
        }
    });
    sets.collect()
}

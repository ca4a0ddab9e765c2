//! The agents of a config: planned, and put in the place of those there were.
//!
//! In: what the config says about models, agents and toolsets. Out: definitions in the service of agents. Plans are made before anything
//! is changed, so that a config is taken over whole or not at all.

use std::sync::Arc;

use toolhub::{
    Toolset,
    agent::{AgentPlan, AgentService, Model, ToolExecution},
    server::NamedToolset,
};

use crate::config::{self, Agents, Execution, Llm};

/// The plans of all agents, by name.
pub(super) type AgentPlans = Vec<(String, AgentPlan)>;

/// Plans the agents of a config.
///
/// # Errors
/// When a model cannot be made, in words.
pub(super) fn build_plans(agents: &Agents) -> Result<AgentPlans, String> {
    let Some(llm) = &agents.llm else { return Ok(AgentPlans::new()) };
    let usual = llm.build_model(&llm.model)?;
    let one = |(name, agent): (&String, &config::Agent)| {
        let model = match &agent.model {
            Some(other) if *other != llm.model => llm.build_model(other)?,
            _ => usual.clone(),
        };
        Ok((name.clone(), build_plan(agent, llm, model)?))
    };
    agents.agents.iter().map(one).collect()
}

/// Defines these agents, and takes those away that are not among them.
pub(super) fn define(service: &AgentService, plans: AgentPlans) {
    let names: Vec<_> = plans.iter().map(|(name, _)| name.as_str().into()).collect();
    for (name, plan) in plans {
        service.define(name, plan);
    }
    service.retain_only(&names);
}

fn build_plan(agent: &config::Agent, llm: &Llm, model: Arc<dyn Model>) -> Result<AgentPlan, String> {
    let tools = match &agent.tools {
        Some(globs) => Toolset::from_patterns(globs.iter().map(String::as_str))?,
        None => Toolset::all(),
    };
    let mut plan = AgentPlan::new(model)
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

/// The toolsets of a config, with the agents that have them.
pub(super) fn named_toolsets(agents: &Agents) -> Vec<NamedToolset> {
    let sets = agents.toolsets.iter().map(|(name, set)| {
        let have = agents.agents.iter().filter(|(_, agent)| agent.toolsets.contains(name));
        NamedToolset {
            name: name.clone(),
            description: set.description.clone(),
            tools: set.tools.clone(),
            agents: have.map(|(agent, _)| agent.clone()).collect(),
        }
    });
    sets.collect()
}

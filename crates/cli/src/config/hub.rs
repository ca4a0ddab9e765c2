//! Turns a config into a hub builder.
//!
//! In: a resolved config and an open store. Out: a builder with all settings; or the parts of a change, for a running hub.
//! Nothing is built here.

use std::sync::Arc;

use toolhub::{
    HubBuilder, Policy, Rule, ToolBuilder, ToolHub, alerts::AlertTarget, config::McpServerPlan, mcp::McpSource,
    status::StatusSettings,
};

use super::{
    Alert, Config,
    change::ChangePlan,
    resolve::{GUARD, McpServers, StoreHandle},
};

/// A change to a running hub: tools to register or replace, tools to remove, and all policies and rules, which replace the
/// earlier ones.
pub(crate) struct HubUpdate {
    pub(crate) put: Vec<ToolBuilder>,
    pub(crate) remove: Vec<String>,
    pub(crate) defaults: Policy,
    pub(crate) policies: Vec<(String, Policy)>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) status: StatusSettings,
}

/// An MCP server as a source of tools. `None` if its settings are invalid, which the config rules out.
pub(crate) fn mcp_source(name: &str, plan: &McpServerPlan) -> Option<McpSource> {
    let source = plan.source(name, GUARD.as_ref());
    source.inspect_err(|error| tracing::error!(server = name, %error, "invalid MCP server")).ok()
}

impl Config {
    /// A hub builder with all settings, these MCP servers, and this store. If it is not connecting, the tools of servers never appear.
    pub(crate) fn hub_builder(&self, servers: &McpServers, is_connecting: bool, store: &StoreHandle) -> HubBuilder {
        let builder = match is_connecting {
            true => {
                let sources = servers.iter().filter_map(|(name, plan)| mcp_source(name, plan));
                let tools = self.tools.iter().filter_map(|(name, tool)| tool.builder(name));
                sources.fold(self.base_builder().tools(tools), HubBuilder::source)
            }
            false => self.disconnected_builder(servers),
        };
        match store {
            StoreHandle::Memory(store) => builder.store(Arc::clone(store)),
            StoreHandle::Sqlite(store) => builder.store(Arc::clone(store)),
            StoreHandle::Redis(store) => builder.store(Arc::clone(store)),
        }
    }

    /// The same with the default store, in memory, and without connections to MCP servers: their tools never appear.
    pub(crate) fn offline_builder(&self) -> HubBuilder {
        self.disconnected_builder(&self.mcp_servers)
    }

    fn disconnected_builder(&self, servers: &McpServers) -> HubBuilder {
        let sources = servers.iter().filter_map(|(name, server)| server.disabled_source(name).ok());
        let tools = self.tools.iter().filter_map(|(name, tool)| tool.offline_builder(name));
        sources.fold(self.base_builder().tools(tools), HubBuilder::source)
    }

    /// A builder without tools and MCP servers.
    fn base_builder(&self) -> HubBuilder {
        let (scheduler, threads) = (&self.scheduler, &self.threads);
        let mut builder = ToolHub::builder()
            .default_policy(self.policies.defaults.clone())
            .status(self.status.clone())
            .state_manager(self.state.manager.clone())
            .business_state(self.state.business.clone())
            .state_store_factory(toolhub::open_store)
            .max_queued_per_tool(scheduler.max_queued_per_tool)
            .max_queued(scheduler.max_queued)
            .max_argument_memory(scheduler.max_argument_memory)
            .run_limits(scheduler.run_limits.clone())
            .max_blocking_threads(scheduler.max_blocking_threads)
            .instance_idle_timeout(threads.instance_idle)
            .max_instances_per_thread(threads.instances_per_thread)
            .max_instances(threads.max_instances)
            .call_retention(self.store.call_retention)
            .read_only_calls(self.store.read_only_calls)
            .event_retention(self.store.event_retention)
            .node_timeout(self.store.node_timeout)
            .idle_thread_retention(self.store.idle_threads)
            .redact(self.telemetry.redact.iter().map(|name| name.to_lowercase()));
        if let Some(calls) = scheduler.max_concurrency {
            builder = builder.max_concurrency(calls);
        }
        for (glob, policy) in &self.policies.limits {
            builder = builder.policy(glob.as_str(), policy.clone());
        }
        let builder = self.alert_targets().into_iter().fold(builder, HubBuilder::alert);
        self.policies.rules.iter().cloned().fold(builder, HubBuilder::rule)
    }

    /// The targets of alerts.
    pub(crate) fn alert_targets(&self) -> Vec<AlertTarget> {
        self.alerts.iter().filter_map(Alert::target).collect()
    }

    /// Whether the config defines a tool of this name, or has an enabled MCP server that may bring it.
    pub(crate) fn may_have_tool(&self, name: &str) -> bool {
        let brings = |(server, plan): (&String, &McpServerPlan)| plan.is_enabled() && plan.may_have_tool(server, name);
        self.tools.contains_key(name) || self.mcp_servers.iter().any(brings)
    }

    /// The tools that were defined by the older config alone and are brought by an MCP server now, with their servers.
    pub(crate) fn moved_to_servers<'a>(
        &'a self,
        old: &'a Self,
        plan: &'a ChangePlan,
    ) -> impl Iterator<Item = (&'a String, &'a str)> {
        let replaced = plan.replaced.iter();
        replaced.filter_map(|name| match old.tools.get(name)?.mcp_server() {
            None => Some((name, self.tools.get(name)?.mcp_server()?)),
            Some(_) => None,
        })
    }

    /// The parts of a change from an older config to this one.
    pub(crate) fn hub_update(&self, old: &Self, plan: &ChangePlan) -> HubUpdate {
        let put = plan.added.iter().chain(&plan.replaced);
        HubUpdate {
            put: put.filter_map(|name| self.tools.get(name)?.builder(name)).collect(),
            remove: plan
                .removed
                .iter()
                .chain(self.moved_to_servers(old, plan).map(|(name, _)| name))
                .cloned()
                .collect(),
            defaults: self.policies.defaults.clone(),
            policies: self.policies.limits.clone(),
            rules: self.policies.rules.clone(),
            status: self.status.clone(),
        }
    }
}

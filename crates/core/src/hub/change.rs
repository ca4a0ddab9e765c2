//! Hot reload: replaces tools and settings atomically while calls run.
//!
//! In: a `HubChange`, validated as a whole. Out: a `ChangeSummary`, or why nothing changed. Running calls finish on the tool
//! they started with. Tools that the change does not name keep their instances and their queue.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use smol_str::SmolStr;

use super::{BuildError, ToolHub, sources::Owner};
use crate::{
    execution::Tool,
    registry::{RegistryError, ToolBuilder, Tools},
};
use toolhub_types::{
    event_kind::EventKind,
    language::Language,
    policy::{Policy, PolicySet, Rule},
    status::{EffectiveStatus, StatusSettings, ToolStatus},
    tool::ToolName,
};

/// A set of changes, to be [applied](ToolHub::apply) as a whole.
#[must_use = "a change does nothing until it is applied"]
#[derive(Debug, Default)]
pub struct HubChange {
    put: Vec<ToolBuilder>,
    remove: Vec<String>,
    /// The new policies; `None` keeps the current ones.
    policy_change: Option<PolicyChange>,
    status: Option<StatusSettings>,
}

#[derive(Debug, Default)]
struct PolicyChange {
    default_policy: Policy,
    policies: Vec<(String, Policy)>,
    rules: Vec<Rule>,
}

/// What a change did, by tool name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
#[schemars(rename = "ConfigChange")]
pub struct ChangeSummary {
    /// Tools that were added.
    pub added: Vec<ToolName>,
    /// Tools that replaced another of the same name.
    pub replaced: Vec<ToolName>,
    /// Tools that were removed.
    pub removed: Vec<ToolName>,
    /// Tools that stayed, with other limits or rules.
    pub adjusted: Vec<ToolName>,
}

impl HubChange {
    /// A change that replaces all policies, rules and the default policy with its own, even if it sets none.
    pub fn replacing_policies() -> Self {
        Self { policy_change: Some(PolicyChange::default()), ..Self::default() }
    }

    /// A change of tools only. Policies, rules and the default policy stay, unless one of them is set.
    pub fn tools_only() -> Self {
        Self::default()
    }

    /// Adds a tool, or replaces the one of the same name.
    pub fn put(mut self, tool: ToolBuilder) -> Self {
        self.put.push(tool);
        self
    }

    /// Removes a tool; an unknown name is ignored. Tools that depend on it stay registered and wait for it.
    pub fn remove(mut self, name: impl Into<String>) -> Self {
        self.remove.push(name.into());
        self
    }

    /// The policy of tools that no other policy covers.
    pub fn default_policy(mut self, policy: Policy) -> Self {
        self.policy_change_mut().default_policy = policy;
        self
    }

    /// Adds a policy for the tools whose names match the glob. Where two match, the later one takes precedence.
    pub fn policy(mut self, tools: impl Into<String>, policy: Policy) -> Self {
        self.policy_change_mut().policies.push((tools.into(), policy));
        self
    }

    /// Adds a rule that denies, asks or allows.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.policy_change_mut().rules.push(rule);
        self
    }

    /// When a failing tool is withheld, and for how long. Unchanged by default. Failures recorded so far stay, and are
    /// evaluated by the new settings.
    pub fn status(mut self, settings: StatusSettings) -> Self {
        self.status = Some(settings);
        self
    }

    fn policy_change_mut(&mut self) -> &mut PolicyChange {
        self.policy_change.get_or_insert_default()
    }
}

impl ChangeSummary {
    fn between(before: &Tools, after: &Tools) -> Self {
        let mut summary = Self::default();
        for tool in after.iter() {
            let name = tool.definition.name.clone();
            match before.get(&name) {
                None => summary.added.push(name),
                Some(old) if old.registration != tool.registration => summary.replaced.push(name),
                Some(old) if !Arc::ptr_eq(old, tool) => summary.adjusted.push(name),
                Some(_) => {}
            }
        }
        summary.removed = before.names().filter(|name| after.get(name).is_none()).cloned().collect();
        let Self { added, replaced, removed, adjusted } = &mut summary;
        [added, replaced, removed, adjusted].into_iter().for_each(|names| names.sort_unstable());
        summary
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl ToolHub {
    /// Applies a change atomically: a call sees the tool, the limits and the rules either from before or from after, never a
    /// mix. A call that waits for approval or in the queue keeps those from before, but is denied if a new rule denies it.
    ///
    /// Tools that the change does not name, including those registered in code, keep their executor, instances and cached
    /// results. A tool that replaces another keeps its limiter, queue and status; the instances of the old tool are closed,
    /// each when the call that uses it has ended. Returns when that is done, or after 20 seconds.
    ///
    /// # Errors
    /// When a tool cannot be registered, or a policy or rule is invalid; all problems are reported. Nothing has changed then.
    pub async fn apply(&self, change: HubChange) -> Result<ChangeSummary, BuildError> {
        let HubChange { put, remove, policy_change, status } = change;
        let policies = policy_change
            .map(|PolicyChange { default_policy, policies, rules }| PolicySet::new(default_policy, policies, rules));
        let (new, sources) = self.build_tools(put);
        let policies = match policies.transpose() {
            Ok(policies) => policies,
            Err(problems) => {
                let tools = RegistryError::combine(new.problems).map_err(BuildError::Tool);
                return Err(BuildError::combine(BuildError::Policy(problems), tools.err()));
            }
        };
        // No tool can have an invalid name, so there is nothing to remove.
        let remove: Vec<ToolName> = remove.into_iter().filter_map(|name| ToolName::new(name).ok()).collect();
        let engine = &self.engine;
        let put = new.tools.iter().map(|tool| &tool.definition.name).chain(&new.sourced);
        let removed_sources = remove.iter().chain(put).filter(|name| self.has_own_source(name));
        let removed_sources: Vec<SmolStr> = removed_sources.map(|name| SmolStr::new(name.as_str())).collect();
        let states = &engine.services.state;
        let (before, after) = engine.registry.apply((&remove, new), &removed_sources, policies, states, || {
            if let Some(settings) = status {
                engine.statuses.update_settings(settings);
            }
        })?;
        let ((), summary) =
            futures_util::join!(self.stop_sources(&removed_sources), self.finish_change(&before, &after));
        sources.into_iter().for_each(|source| self.start_source(source, Owner::Tool));
        Ok(summary)
    }

    /// Emits the events of a change, and closes what the removed and replaced tools held.
    pub(super) async fn finish_change(&self, before: &Tools, after: &Tools) -> ChangeSummary {
        let engine = &self.engine;
        engine.services.availability_changed.notify_one();
        let summary = ChangeSummary::between(before, after);
        let mut retired = Vec::new();
        for name in summary.removed.iter().chain(&summary.replaced) {
            engine.scheduler.result_cache.forget_tool(name);
            retired.extend(before.get(name));
        }
        let is_listed = |tools: &Tools, name: &ToolName| tools.get(name).is_some_and(|tool| !tool.unlisted);
        for tool_name in summary.removed.iter().filter(|name| is_listed(before, name)) {
            self.emit(EventKind::ToolUnregistered { tool_name: tool_name.clone() });
        }
        for tool_name in summary.added.iter().filter(|name| is_listed(after, name)) {
            self.emit(EventKind::ToolRegistered { tool_name: tool_name.clone() });
        }
        for (old, new) in summary.replaced.iter().filter_map(|name| before.get(name).zip(after.get(name))) {
            self.emit_presence_change(old, new);
        }
        // Closing starts for all of them before the first is awaited: if the caller is dropped, none stays open.
        futures_util::future::join_all(retired.into_iter().map(|tool| self.close_resources(tool))).await;
        summary
    }

    /// Emits status and availability changes if a replacement tool is disabled or pending and the old one was not, or the reverse.
    fn emit_presence_change(&self, old: &Arc<Tool>, new: &Arc<Tool>) {
        if old.is_present() != new.is_present() {
            self.emit_status_change(&new.definition.name, &self.shared_status(old), &self.shared_status(new));
        }
    }

    /// Emits the change of a tool's shared status that no status record shows.
    pub(super) fn emit_status_change(&self, tool: &ToolName, before: &EffectiveStatus, after: &EffectiveStatus) {
        if before.status != after.status {
            self.engine.statuses.count_change(tool, before.status, after.status);
            let (tool_name, reason) = (tool.clone(), after.reason.text(Language::English));
            let (old_status, new_status) = (Some(before.status), after.status);
            self.emit(EventKind::StatusChanged {
                tool_name: tool_name.clone(),
                old_status,
                new_status,
                reason: reason.clone(),
            });
            let available = new_status == ToolStatus::Available;
            if available != (before.status == ToolStatus::Available) {
                self.emit(EventKind::AvailabilityChanged { tool_name, available, reason });
            }
        }
    }

    /// Emits the stored event `config.reloaded`: what a change did, and which settings take effect only after a restart.
    /// [`apply`](Self::apply) does not emit it, because not every change comes from a config.
    pub fn emit_config_reloaded(&self, summary: &ChangeSummary, needs_restart: Vec<String>) {
        let ChangeSummary { added, replaced, removed, adjusted } = summary.clone();
        self.emit(EventKind::ConfigReloaded { added, replaced, removed, adjusted, needs_restart });
    }
}

//! Other tools and other settings while calls run, all at once.
//!
//! In: what is to be otherwise, checked as a whole. Out: what has changed; or why nothing has. Calls that run go on with the
//! tool they began with. What a change does not name stays as it is, down to its instances and its place in the queue.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::{BuildError, StatusScope, ToolHub};
use crate::{
    execution::Tool,
    registry::{ToolBuilder, ToolFilter, Tools},
};
use toolhub_types::{
    event_kind::EventKind,
    policy::{Policy, PolicySet, Rule},
    status::{Evidence, StatusSettings, ToolStatus},
    tool::ToolName,
};

/// What is to be otherwise, to be [applied](ToolHub::apply) as a whole.
#[must_use = "a change does nothing until it is applied"]
#[derive(Debug, Default)]
pub struct HubChange {
    put: Vec<ToolBuilder>,
    remove: Vec<String>,
    /// What is said about tools; none where what was said before still holds.
    policy_change: Option<PolicyChange>,
    status: Option<StatusSettings>,
}

#[derive(Debug, Default)]
struct PolicyChange {
    default_policy: Policy,
    policies: Vec<(String, Policy)>,
    rules: Vec<Rule>,
}

/// What a change has done, by the names of tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
#[schemars(rename = "ConfigChange")]
pub struct ChangeSummary {
    /// Those that came.
    pub added: Vec<ToolName>,
    /// Those that took the place of others under the same name.
    pub replaced: Vec<ToolName>,
    /// Those that went.
    pub removed: Vec<ToolName>,
    /// Those that stayed, and whose limits or rules are others now.
    pub adjusted: Vec<ToolName>,
}

impl HubChange {
    /// Everything is said anew: the policies, rules and defaults of this change take the place of all earlier ones, also
    /// where it has none.
    pub fn replacing_policies() -> Self {
        Self { policy_change: Some(PolicyChange::default()), ..Self::default() }
    }

    /// Only tools come and go; the policies, rules and defaults stay, until one is said.
    pub fn tools_only() -> Self {
        Self::default()
    }

    /// Adds a tool, or puts it in the place of the one with its name.
    pub fn put(mut self, tool: ToolBuilder) -> Self {
        self.put.push(tool);
        self
    }

    /// Takes a tool away. One that is not there is no problem. Tools that depend on it wait for it.
    pub fn remove(mut self, name: impl Into<String>) -> Self {
        self.remove.push(name.into());
        self
    }

    /// What holds for tools of which nothing else is said.
    pub fn default_policy(mut self, policy: Policy) -> Self {
        self.policy_change_mut().default_policy = policy;
        self
    }

    /// What holds for the tools whose names fit the glob; of two that fit, the later one weighs more.
    pub fn policy(mut self, tools: impl Into<String>, policy: Policy) -> Self {
        self.policy_change_mut().policies.push((tools.into(), policy));
        self
    }

    /// A rule that denies, asks or allows.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.policy_change_mut().rules.push(rule);
        self
    }

    /// When a failing tool is withheld, and for how long; as before where nothing is said. What tools have failed so far
    /// stays known, and is judged by these from now on.
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
        let mut changed = Self::default();
        for tool in after.list(&ToolFilter::default()) {
            let name = tool.definition.name.clone();
            match before.get(&name) {
                None => changed.added.push(name),
                Some(old) if old.registration != tool.registration => changed.replaced.push(name),
                Some(old) if !Arc::ptr_eq(old, &tool) => changed.adjusted.push(name),
                Some(_) => {}
            }
        }
        let gone = before.list(&ToolFilter::default()).into_iter().map(|tool| tool.definition.name.clone());
        changed.removed = gone.filter(|name| after.get(name).is_none()).collect();
        changed
    }

    /// Whether nothing is otherwise than before.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl ToolHub {
    /// Makes a change, all of it at one moment or nothing of it: nobody ever sees a half of it, and a call has either the
    /// tool, the limits and the rules from before or those from after. One that waits, for a person or for its turn, has those from
    /// before, and is denied besides where a rule from after forbids it.
    ///
    /// What the change does not name stays as it is, also tools registered in code: the same executor, instances and kept
    /// answers. A tool that takes the place of another keeps its limiter, its queue and its status; the instances of the
    /// other are closed, each when the call that uses it has ended. Answers when that is done, or after 20 seconds.
    ///
    /// # Errors
    /// When a tool cannot be registered, or a policy or rule makes no sense. Everything is as it was then.
    pub async fn apply(&self, change: HubChange) -> Result<ChangeSummary, BuildError> {
        let HubChange { put, remove, policy_change: said, status } = change;
        let said = said.map(|PolicyChange { default_policy: defaults, policies, rules }| {
            PolicySet::new(defaults, policies, rules)
        });
        let book = said.transpose().map_err(BuildError::Policy)?;
        let new = self.build_tools(put)?;
        // What cannot be a name is nobody's.
        let remove: Vec<ToolName> = remove.into_iter().filter_map(|name| ToolName::new(name).ok()).collect();
        let engine = &self.engine;
        let (before, after) =
            engine.registry.apply((&remove, new), book, engine.services.state.store_router(), || {
                if let Some(settings) = status {
                    engine.statuses.update_settings(settings);
                }
            })?;
        engine.services.availability_changed.notify_one();
        let changed = ChangeSummary::between(&before, &after);
        let mut leaving = Vec::new();
        for name in changed.removed.iter().chain(&changed.replaced) {
            engine.scheduler.result_cache.forget_tool(name);
            leaving.extend(before.get(name));
        }
        for tool_name in &changed.removed {
            self.emit(EventKind::ToolUnregistered { tool_name: tool_name.clone() });
        }
        for tool_name in &changed.added {
            self.emit(EventKind::ToolRegistered { tool_name: tool_name.clone() });
        }
        for (old, new) in changed.replaced.iter().filter_map(|name| before.get(name).zip(after.get(name))) {
            self.emit_presence_change(old, new);
        }
        // All of them are told before the first is waited for: a caller that goes away leaves none open.
        futures_util::future::join_all(leaving.into_iter().map(|tool| self.close_instances(tool))).await;
        Ok(changed)
    }

    /// Tells listeners if a tool that takes the place of another is switched off, or no longer.
    fn emit_presence_change(&self, old: &Arc<Tool>, new: &Arc<Tool>) {
        if old.disabled == new.disabled {
            return;
        }
        let read = |tool: &Arc<Tool>| {
            self.snapshot_tools_with(vec![tool.clone()], StatusScope::Shared, &Evidence::default(), self.now()).pop()
        };
        let (Some(before), Some(after)) = (read(old), read(new)) else { return };
        let (before, after) = (before.info(), after.info());
        if before.status != after.status {
            let (tool_name, reason) = (after.tool_name, after.reason);
            let (old_status, new_status) = (Some(before.status), after.status);
            self.emit(EventKind::StatusChanged {
                tool_name: tool_name.clone(),
                old_status,
                new_status,
                reason: reason.clone(),
            });
            let available = new_status == ToolStatus::Available;
            self.emit(EventKind::AvailabilityChanged { tool_name, available, reason });
        }
    }

    /// Tells listeners, also later ones, that other settings hold: what a change has done, and what has changed and holds only
    /// after a restart. Not told by [`apply`](Self::apply), because not every change comes from a config.
    pub fn emit_config_reloaded(&self, changed: &ChangeSummary, needs_restart: Vec<String>) {
        let ChangeSummary { added, replaced, removed, adjusted } = changed.clone();
        self.emit(EventKind::ConfigReloaded { added, replaced, removed, adjusted, needs_restart });
    }
}

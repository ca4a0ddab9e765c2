//! What a config says about a tool beside its executor: description, effects, dependencies, metadata, and the policy of its calls.
//!
//! In: the raw keys. Out: plain values that can be compared, and a tool that they are applied to.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;
use toolhub_core::{Policy, ToolBuilder};

use crate::config::{
    Diagnostics, KeyPath,
    raw::{Annotations, DependsOn},
};

/// What overrides the own definition of a tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Overrides {
    pub(super) description: Option<String>,
    pub(super) depends_on: Vec<DependencyGroup>,
    pub(super) annotations: Annotations,
    pub(super) category: Option<String>,
    pub(super) tags: Vec<String>,
    pub(super) version: Option<String>,
    pub(super) metadata: BTreeMap<String, Value>,
    pub(super) policy: Policy,
}

/// Tools that must have succeeded before this one may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DependencyGroup {
    mode: DependencyMode,
    tools: Vec<String>,
    within: Option<Duration>,
}

/// Which tools of a group must have succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DependencyMode {
    All,
    Any,
    Sequence,
}

impl Overrides {
    /// Applies them to a tool.
    pub(super) fn apply(&self, mut tool: ToolBuilder) -> ToolBuilder {
        tool = tool.annotations(|own| {
            let Annotations { title, read_only, destructive, idempotent, open_world } = &self.annotations;
            own.title = title.clone().or(own.title.take());
            own.read_only = read_only.unwrap_or(own.read_only);
            // `read_only = true` implies not destructive and idempotent, unless the config says otherwise.
            let set_read_only = *read_only == Some(true);
            own.destructive = destructive.unwrap_or(own.destructive && !set_read_only);
            own.idempotent = idempotent.unwrap_or(own.idempotent || set_read_only);
            own.open_world = open_world.unwrap_or(own.open_world);
        });
        tool = tool.policy(|own| *own = merge_policy(own, &self.policy));
        if let Some(text) = &self.description {
            tool = tool.description(text.as_str());
        }
        for DependencyGroup { mode, tools, within } in &self.depends_on {
            let names = tools.iter().map(String::as_str);
            tool = match mode {
                DependencyMode::All => tool.after_all(names),
                DependencyMode::Any => tool.after_any(names),
                DependencyMode::Sequence => tool.after_sequence(names),
            };
            if let Some(time) = within {
                tool = tool.within(*time);
            }
        }
        if let Some(category) = &self.category {
            tool = tool.category(category.as_str());
        }
        if let Some(version) = &self.version {
            tool = tool.version(version.as_str());
        }
        tool = self.tags.iter().fold(tool, |tool, tag| tool.tag(tag.as_str()));
        tool = self.metadata.iter().fold(tool, |tool, (name, value)| tool.metadata(name.as_str(), value.clone()));
        tool
    }
}

/// Resolves the dependencies of the tool at `at`.
pub(super) fn dependency_groups(
    depends_on: Option<&DependsOn>,
    at: &KeyPath,
    diagnostics: &mut Diagnostics<'_>,
) -> Vec<DependencyGroup> {
    match depends_on {
        None => Vec::new(),
        Some(DependsOn::Names(tools)) => {
            vec![DependencyGroup { mode: DependencyMode::All, tools: tools.clone(), within: None }]
        }
        Some(DependsOn::Groups(groups)) => {
            let modes = [
                (DependencyMode::All, &groups.all),
                (DependencyMode::Any, &groups.any),
                (DependencyMode::Sequence, &groups.sequence),
            ];
            let within = groups.within.map(|time| time.0);
            let resolved: Vec<DependencyGroup> = modes
                .into_iter()
                .filter_map(|(mode, tools)| Some(DependencyGroup { mode, tools: tools.clone()?, within }))
                .collect();
            if resolved.is_empty() {
                let help = "name tools: depends_on = { any = [\"a\", \"b\"] }, or all, or sequence";
                diagnostics.report(&at.key("depends_on"), "`depends_on` names no tools", help);
            }
            resolved
        }
    }
}

/// The configured policy overrides the tool's own, field by field.
fn merge_policy(own: &Policy, configured: &Policy) -> Policy {
    let configured = configured.clone();
    Policy {
        timeout: configured.timeout.or(own.timeout),
        attempt_timeout: configured.attempt_timeout.or(own.attempt_timeout),
        idle_timeout: configured.idle_timeout.or(own.idle_timeout),
        text_limit: configured.text_limit.or(own.text_limit),
        output_limit: configured.output_limit.or(own.output_limit),
        retry: configured.retry.or_else(|| own.retry.clone()),
        rate_limits: configured.rate_limits.or_else(|| own.rate_limits.clone()),
        max_concurrency: configured.max_concurrency.or(own.max_concurrency),
        max_concurrency_shared: configured.max_concurrency_shared.or(own.max_concurrency_shared),
        queue_timeout: configured.queue_timeout.or(own.queue_timeout),
        cache: configured.cache.or(own.cache),
        parallel_safe: configured.parallel_safe.or(own.parallel_safe),
        confirm: configured.confirm.or(own.confirm),
        approval_timeout: configured.approval_timeout.or(own.approval_timeout),
    }
}

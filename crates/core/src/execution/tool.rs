//! `Tool`: a registered tool with its definition, effective limits and executor.
//!
//! Built and listed by `registry`; a call holds one of these from the moment its name is resolved.

use std::sync::Arc;

use serde_json::Value;
use smol_str::SmolStr;

use super::Executor;
use crate::{
    approvals::ToolVersion, hooks::Hook, link::Link, registration::Registration, scheduler::ToolRuntime,
    services::Services,
};
use toolhub_schema::schema::Schema;
use toolhub_state::StateSettings;
use toolhub_types::{
    ids::{Caller, StateName},
    language::Language,
    policy::{Gate, Limits, Policy, PolicySet, Rule},
    status::Readiness,
    timestamp::Timestamp,
    tool::Definition,
};

/// A registered tool.
#[derive(Clone)]
pub struct Tool {
    /// Its definition.
    pub definition: Definition,
    /// Its own policy, as set by its author.
    pub policy: Policy,
    pub(crate) registration: Registration,
    /// When it was registered or replaced while the hub was running.
    pub(crate) registered_at: Option<Timestamp>,
    pub(crate) limits: Limits,
    /// The rules that deny, ask about or allow its calls.
    pub(crate) gate: Gate,
    /// Its scheduler state. A tool that replaces it under the same name takes this over.
    pub(crate) runtime: Arc<ToolRuntime>,
    /// The hooks around its calls.
    pub(crate) hooks: Vec<Arc<dyn Hook>>,
    /// Hash of its definition and implementation; changes with them.
    pub(crate) fingerprint: String,
    /// The states it checks out, and their rules.
    pub(crate) state: StateSettings,
    /// The name of the state whose kind `connection` describes its connection: of stateful, REST and MCP tools.
    pub(crate) connection: Option<StateName>,
    /// Why it is disabled by its definition, if it is.
    pub(crate) disabled: Option<Box<str>>,
    /// The function of an older program that has no implementation here, if it is missing.
    pub(crate) missing_function: Option<Box<str>>,
    /// How to review its definition, which waits for approval.
    pub(crate) pending_approval: Option<Box<str>>,
    /// Whether it is in no list and can only be called by its name.
    pub(crate) unlisted: bool,
    /// The connectivity of the service behind it.
    pub(crate) link: Option<Link>,
    /// The source that added it, if it was added by one.
    pub(crate) source: Option<SmolStr>,
    /// Whether a call whose process died is rerun. The tool is idempotent then.
    pub(crate) rerun_interrupted: bool,
    pub(crate) schema: Schema,
    /// The schema of its output.
    pub(crate) output: Option<Schema>,
    pub(crate) executor: Arc<dyn Executor>,
    /// The hub's services. Reached through the tool, so that a call clones one `Arc` and not two: the reference count is a
    /// contended cache line when calls run on several threads.
    pub(crate) services: Arc<Services>,
    /// Whether its calls need a thread; one is minted if the caller names none.
    pub(crate) needs_thread: bool,
    /// Whether its calls use state or instances of a thread.
    pub(crate) stateful: bool,
}

impl Tool {
    /// The effective limits of its calls, merged from all policies.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The rules that may apply to its calls, in the order of evaluation, and the default if none matches.
    #[must_use]
    pub fn rules(&self, language: Language) -> Vec<String> {
        self.gate.describe(language)
    }

    /// The rule that denies all its calls, so that it is not offered.
    #[must_use]
    pub fn denied_by(&self) -> Option<String> {
        self.gate.deny_all_rule(&self.definition, None).map(Rule::label)
    }

    /// The rule that denies all calls that this caller makes, so that the tool is not listed for it.
    #[must_use]
    pub fn denied_to(&self, caller: &Caller) -> Option<String> {
        self.gate.deny_all_rule(&self.definition, Some(caller)).map(Rule::label)
    }

    /// Whether an output fits the tool's output schema. Every output fits a tool without one.
    #[must_use]
    pub fn fits(&self, output: &Value) -> bool {
        self.output.as_ref().is_none_or(|schema| schema.accepts(output))
    }

    /// Whether it is in no list and can only be called by its name.
    #[must_use]
    pub fn is_unlisted(&self) -> bool {
        self.unlisted
    }

    /// Whether its calls need a thread; one is minted if the caller names none.
    #[must_use]
    pub fn needs_thread(&self) -> bool {
        self.needs_thread
    }

    /// The names of the states it checks out.
    #[must_use]
    pub fn states(&self) -> &[StateName] {
        &self.state.names
    }

    /// The version that approvals and grants are bound to.
    pub(crate) fn version(&self) -> ToolVersion<'_> {
        ToolVersion { definition: &self.definition, fingerprint: &self.fingerprint }
    }

    /// The name of the source that added it, such as an MCP server.
    #[must_use]
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// Whether nothing but its dependencies and its status record decides whether it can be called. One atomic load at most.
    pub(crate) fn is_present(&self) -> bool {
        self.disabled.is_none()
            && self.missing_function.is_none()
            && self.pending_approval.is_none()
            && self.link.as_ref().is_none_or(Link::is_connected)
    }

    /// Readiness that overrides its dependencies: it is disabled or has no implementation, its definition waits for approval, or it is not connected.
    pub(crate) fn presence_override(&self) -> Option<Readiness> {
        if self.is_present() {
            return None;
        }
        if let Some(why) = &self.disabled {
            return Some(Readiness::Disabled { message: Some(why.to_string()) });
        }
        if let Some(function) = &self.missing_function {
            return Some(Readiness::NoImplementation { function: Some(function.to_string()) });
        }
        if let Some(how) = &self.pending_approval {
            return Some(Readiness::PendingApproval { message: how.to_string() });
        }
        Some(Readiness::Disconnected { message: self.link.as_ref().and_then(Link::cause) })
    }

    /// Whether a registration of the same name by the same source would change nothing.
    pub(crate) fn is_same_registration(&self, new: &Self) -> bool {
        self.definition == new.definition
            && self.policy == new.policy
            && self.fingerprint == new.fingerprint
            && self.disabled == new.disabled
            && self.missing_function == new.missing_function
            && self.pending_approval == new.pending_approval
            && self.unlisted == new.unlisted
            && self.rerun_interrupted == new.rerun_interrupted
    }

    /// Applies policies; returns whether its limits or rules changed.
    pub(crate) fn apply_policies(&mut self, policies: &PolicySet) -> bool {
        let mut limits = policies.limits(&self.definition, &self.policy);
        // The result of an instance depends on data that no cache key covers.
        limits.cache = limits.cache.filter(|_| !self.stateful || !self.state.names.is_empty());
        let gate = policies.gate(&self.definition, &limits);
        let changed = self.limits != limits || self.gate != gate;
        (self.limits, self.gate) = (limits, gate);
        changed
    }
}

/// What the dependents of a tool need to know of its successes.
///
/// As wide as its neighbours in `CallEnvelope`: with a single byte there, every move of the envelope would copy odd-sized pieces,
/// which costs a call about as much as its tool lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub(crate) enum EvidenceDemand {
    /// It has no dependents.
    None,
    /// That it has succeeded.
    Once,
    /// When it last succeeded.
    Latest,
}

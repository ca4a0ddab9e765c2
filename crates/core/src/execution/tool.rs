//! A registered tool: its definition, what holds for its calls, and who runs it.
//!
//! Built and listed by `registry`; a call holds one of these from the moment its name is resolved.

use std::sync::Arc;

use super::Executor;
use crate::{
    approvals::ToolVersion,
    hooks::Hook,
    registration::{RegisteredTool, Registration},
    scheduler::ToolRuntime,
    services::Services,
    state::StateRules,
};
use toolhub_schema::schema::Schema;
use toolhub_types::{
    ids::StateName,
    language::Language,
    policy::{Gate, Limits, Policy, PolicySet, Rule},
    status::Readiness,
    tool::Definition,
};

/// A registered tool.
#[derive(Clone)]
pub struct Tool {
    /// What is known about it.
    pub definition: Definition,
    /// What its owner said about its calls.
    pub policy: Policy,
    pub(crate) registration: Registration,
    pub(crate) limits: Limits,
    /// Whether its calls are denied, asked about or allowed.
    pub(crate) gate: Gate,
    /// Its place in the scheduler. A tool that takes its place under the same name takes this over.
    pub(crate) runtime: Arc<ToolRuntime>,
    /// The owner's own code around its calls.
    pub(crate) hooks: Vec<Arc<dyn Hook>>,
    /// Of its definition: another one means that the tool is another.
    pub(crate) fingerprint: String,
    /// The states it takes out, and what holds for them.
    pub(crate) state: StateRules,
    /// Its owner has switched it off, and this is why.
    pub(crate) disabled: Option<Box<str>>,
    /// A call whose process died is run again. The tool is idempotent.
    pub(crate) rerun_interrupted: bool,
    pub(crate) schema: Schema,
    pub(crate) executor: Arc<dyn Executor>,
    /// What its executions may reach. Kept here so that a call holds one shared thing, the tool, and not two: counting
    /// holders is what callers on several threads would otherwise wait for each other at.
    pub(crate) services: Arc<Services>,
    /// Its calls belong to a thread; one is minted where the caller names none.
    pub(crate) needs_thread: bool,
    /// Its calls touch what is kept for a thread, so they have something to commit.
    pub(crate) stateful: bool,
}

impl Tool {
    /// What holds for its calls, after everything that was said about it has been laid over each other.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The rules that may concern its calls, in the order they are asked, and what holds where none of them speaks.
    #[must_use]
    pub fn rules(&self, language: Language) -> Vec<String> {
        self.gate.describe(language)
    }

    /// The rule that denies every call of it, so that it is not offered.
    #[must_use]
    pub fn denied_by(&self) -> Option<String> {
        self.gate.deny_all_rule(&self.definition).map(Rule::label)
    }

    /// The names of the states it takes out.
    #[must_use]
    pub fn states(&self) -> &[StateName] {
        &self.state.names
    }

    /// Which tool it is for those who keep its instances.
    pub(crate) fn as_registered(&self) -> RegisteredTool<'_> {
        RegisteredTool { name: &self.definition.name, registration: &self.registration }
    }

    /// What approvals and grants about it are bound to.
    pub(crate) fn version(&self) -> ToolVersion<'_> {
        ToolVersion { definition: &self.definition, fingerprint: &self.fingerprint }
    }

    /// What else is known of it, if it is not simply there.
    pub(crate) fn presence_override(&self) -> Option<Readiness> {
        self.disabled.as_ref().map(|why| Readiness::Disabled { message: Some(why.to_string()) })
    }

    /// What was said about tools holds for it from now on; says whether that changes anything.
    pub(crate) fn apply_policies(&mut self, book: &PolicySet) -> bool {
        let mut limits = book.limits(&self.definition, &self.policy);
        // An instance remembers things nobody else sees, so nobody can tell when its answer would be another.
        limits.cache = limits.cache.filter(|_| !self.stateful || !self.state.names.is_empty());
        let gate = book.gate(&self.definition, &limits);
        let changed = self.limits != limits || self.gate != gate;
        (self.limits, self.gate) = (limits, gate);
        changed
    }
}

/// Whether others wait for a tool, and what they want to know of its successes.
///
/// As wide as its neighbours in what travels through the doors: a single byte there would be moved in odd pieces at every
/// door, which costs a call about as much as looking its tool up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub(crate) enum EvidenceDemand {
    /// Nobody waits for it.
    None,
    /// Somebody wants to know that it has succeeded.
    Once,
    /// Somebody wants to know when it last did.
    Latest,
}

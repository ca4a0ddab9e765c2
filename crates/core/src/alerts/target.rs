//! Where alerts go, and which: a target with its conditions, filters and times.
//!
//! In: the settings of a target. Out: whether it wants a signal, and the rules by which its alerts are reported. `channel.rs` says how
//! messages reach it.

use std::{fmt, sync::Arc, time::Duration};

use smol_str::SmolStr;

use super::{AlertChannel, Condition, signal::Signal};
use toolhub_types::{ids::Tenant, policy::Glob};

/// A target of alerts.
///
/// ```
/// # use std::time::Duration;
/// # use toolhub_core::alerts::{AlertChannel, AlertTarget, Condition};
/// # fn example(channel: impl AlertChannel) -> AlertTarget {
/// AlertTarget::new("ops", channel).on([Condition::ToolWithheld, Condition::ServerDown]).repeat(Duration::from_secs(3600))
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a target does nothing until it is given to a hub"]
pub struct AlertTarget {
    pub(crate) name: SmolStr,
    pub(crate) channel: Arc<dyn AlertChannel>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) tools: Vec<Glob>,
    pub(crate) tenant: Option<Tenant>,
    pub(crate) hold: Option<Duration>,
    pub(crate) repeat: Duration,
    pub(crate) reports_end: bool,
    pub(crate) errors: ErrorRate,
    pub(crate) key_expiry: Duration,
}

/// When the calls of a tool fail too often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ErrorRate {
    /// The part of the calls that fail, from 0 to 1, above which the condition holds.
    pub rate: f64,
    /// The time that is looked at; the rate must be lower for as long until the condition ends.
    pub window: Duration,
    /// The least number of calls in that time.
    pub minimum: u64,
}

impl Default for ErrorRate {
    fn default() -> Self {
        Self { rate: 0.5, window: Duration::from_secs(300), minimum: 20 }
    }
}

impl fmt::Debug for AlertTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlertTarget").field("name", &self.name).field("on", &self.conditions).finish_non_exhaustive()
    }
}

impl AlertTarget {
    /// The time after which an alert that lasts is reported again, unless set otherwise.
    pub const DEFAULT_REPEAT: Duration = Duration::from_secs(4 * 3600);
    /// How long before its end an API key is reported, unless set otherwise.
    pub const DEFAULT_KEY_EXPIRY: Duration = Duration::from_secs(14 * 24 * 3600);

    /// A target that receives every change of the shared status of a tool. Its name is unique in a hub.
    pub fn new(name: impl Into<SmolStr>, channel: impl AlertChannel) -> Self {
        Self {
            name: name.into(),
            channel: Arc::new(channel),
            conditions: vec![Condition::ToolStatus],
            tools: Vec::new(),
            tenant: None,
            hold: None,
            repeat: Self::DEFAULT_REPEAT,
            reports_end: true,
            errors: ErrorRate::default(),
            key_expiry: Self::DEFAULT_KEY_EXPIRY,
        }
    }

    /// The conditions that are reported to it. Default: [`Condition::ToolStatus`].
    pub fn on(mut self, conditions: impl IntoIterator<Item = Condition>) -> Self {
        self.conditions = conditions.into_iter().collect();
        self
    }

    /// Only alerts about tools whose names match one of these; alerts that are not about a tool are unaffected. Default: all tools.
    pub fn tools(mut self, tools: impl IntoIterator<Item = Glob>) -> Self {
        self.tools = tools.into_iter().collect();
        self
    }

    /// Only alerts that concern this tenant, or all of them. Default: all tenants.
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// How long each condition must hold before it is reported. Default: see [`Condition::default_hold`].
    pub fn hold(mut self, time: Duration) -> Self {
        self.hold = Some(time);
        self
    }

    /// The time after which an alert that lasts is reported again. Default: 4 hours.
    pub fn repeat(mut self, time: Duration) -> Self {
        self.repeat = time;
        self
    }

    /// Whether the end of an alert is reported. Default: yes.
    pub fn resolved(mut self, is_reported: bool) -> Self {
        self.reports_end = is_reported;
        self
    }

    /// The thresholds of [`Condition::ErrorsHigh`].
    pub fn error_rate(mut self, rate: ErrorRate) -> Self {
        self.errors = rate;
        self
    }

    /// How long before its end an API key is reported. Default: 14 days.
    pub fn key_expiry(mut self, time: Duration) -> Self {
        self.key_expiry = time;
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long a condition must hold before it is reported.
    pub(crate) fn hold_of(&self, condition: Condition) -> Duration {
        self.hold.unwrap_or(condition.row().hold)
    }

    pub(crate) fn wants_condition(&self, condition: Condition) -> bool {
        self.conditions.contains(&condition)
    }

    /// Whether this is reported to it.
    pub(crate) fn wants(&self, signal: &Signal) -> bool {
        let is_for_tool = |tool: &str| self.tools.is_empty() || self.tools.iter().any(|glob| glob.matches(tool));
        self.wants_condition(signal.condition)
            && signal.target.as_ref().is_none_or(|target| *target == self.name)
            && signal.tool.as_ref().is_none_or(|tool| is_for_tool(tool.as_str()))
            && self.tenant.as_ref().is_none_or(|own| signal.tenant.as_ref().is_none_or(|tenant| tenant == own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::testing::Silent;
    use toolhub_types::{timestamp::Timestamp, tool::ToolName};

    #[test]
    fn a_target_is_told_of_its_conditions_tools_and_tenant_and_of_what_concerns_all() {
        let tenant = Tenant::new("acme").unwrap();
        let target = AlertTarget::new("ops", Silent)
            .on([Condition::ToolStatus, Condition::RunFailed])
            .tools([Glob::new("pay__*").unwrap()])
            .tenant(tenant.clone());
        let now = Timestamp::from_millis(0);
        let of_tool = |name| Signal::active(Condition::ToolStatus, name, now, "").tool(&ToolName::new(name).unwrap());
        let of_run = || Signal::happened(Condition::RunFailed, "r", now, "");
        assert!(target.wants(&of_tool("pay__refund")));
        assert!(!target.wants(&of_tool("weather")));
        assert!(target.wants(&of_run().tenant(&tenant)));
        assert!(target.wants(&of_run()));
        assert!(!target.wants(&of_run().tenant(&Tenant::new("other").unwrap())));
        assert!(!target.wants(&Signal::active(Condition::ServerDown, "pg", now, "")));
        assert!(!target.wants(&Signal { target: Some("other".into()), ..of_run() }));
    }
}

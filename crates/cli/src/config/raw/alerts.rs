//! The sections `[[alerts]]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub::{
    alerts::{AlertTarget, Condition},
    config::{DurationOrZero, PositiveDuration, SecretSource},
    webhooks::Format,
};

/// A target of alerts.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Alert {
    /// Name of the target: letters, digits, `_` and `-`. Commands, metrics and messages refer to it.
    #[schemars(length(min = 1, max = 64))]
    pub(crate) name: String,
    /// Address that receives the messages, or a reference to it: addresses of chats are secrets.
    pub(crate) url: SecretSource,
    /// Secret that signs the messages: "whsec_" and base64, or a reference to it. The format `json` needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<SecretSource>,
    /// Secret that was used before. While both are set, messages have two signatures, so that the receiver can change to the new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) previous_secret: Option<SecretSource>,
    /// Format of the messages.
    #[serde(default = "json")]
    pub(crate) format: Format,
    /// Conditions that are reported.
    #[serde(default = "default_conditions")]
    #[schemars(length(min = 1))]
    pub(crate) on: Vec<Condition>,
    /// Glob over tool names: of the alerts about tools, only those about these. Default: all tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    /// Only alerts that concern this tenant, or all tenants. Default: all tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// How long a condition must hold before it is reported. Default: as docs/operate/alerts.md says for each condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hold: Option<DurationOrZero>,
    /// Time after which an alert that lasts is reported again.
    #[serde(default = "default_repeat")]
    pub(crate) repeat: PositiveDuration,
    /// Whether the end of an alert is reported.
    #[serde(default = "yes")]
    pub(crate) resolved: bool,
    /// Hosts with private or local addresses that messages may be sent to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) allow_hosts: Vec<String>,
    /// For `errors.high`: the part of a tool's calls that may fail, from 0 to 1. Default: 0.5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub(crate) rate: Option<f64>,
    /// For `errors.high`: the time that is looked at. Default: "5m".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) window: Option<PositiveDuration>,
    /// For `errors.high`: the least number of calls in that time. Default: 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) minimum: Option<u32>,
    /// For `key.expiring`: how long before its end a key is reported. Default: "14d".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_within: Option<PositiveDuration>,
}

fn json() -> Format {
    Format::Json
}

fn default_conditions() -> Vec<Condition> {
    vec![Condition::ToolStatus]
}

fn default_repeat() -> PositiveDuration {
    PositiveDuration(AlertTarget::DEFAULT_REPEAT)
}

fn yes() -> bool {
    true
}

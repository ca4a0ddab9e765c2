//! Webhooks for alerts: sends the messages of a target as signed JSON, to Slack, or to an Alertmanager.
//!
//! In: the settings of a target, and messages of `toolhub_core::alerts`. Out: one HTTP request per attempt, and what was answered. The
//! addresses are guarded like those of tools. When a message is sent again is decided in the core.

mod alertmanager;
mod payload;
mod signature;
mod slack;
mod webhook;

pub use signature::{SigningSecret, SigningSecretError};
pub use webhook::{Webhook, WebhookError};

/// The format of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "AlertFormat")]
#[non_exhaustive]
pub enum Format {
    /// JSON, signed as the Standard Webhooks specification says.
    Json,
    /// A message for an incoming webhook of Slack, or of another chat that takes its format.
    Slack,
    /// Alerts for the API of a Prometheus Alertmanager: `…/api/v2/alerts`.
    Alertmanager,
}

impl Format {
    /// Its name in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Slack => "slack",
            Self::Alertmanager => "alertmanager",
        }
    }
}

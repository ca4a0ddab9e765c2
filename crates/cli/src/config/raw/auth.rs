//! The section `[auth]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub(crate) use toolhub::server::Scope;

use toolhub::config::SecretSource;

/// Authentication of clients.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Auth {
    /// Whether clients need an API key.
    pub(crate) mode: AuthMode,
    /// The API keys. `toolhub keys create NAME` creates one and prints the lines to add here.
    pub(crate) keys: Vec<Key>,
}

/// Whether clients need an API key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AuthMode {
    /// No key needed: every user of this machine has full access, and the server listens only on loopback.
    #[default]
    Local,
    /// A client needs a key, whose scopes limit what it may do.
    Keys,
}

/// An API key.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Key {
    /// Name of the key's holder; rules, limits and the audit log refer to the caller by it.
    #[schemars(length(min = 1, max = 128))]
    pub(crate) name: String,
    /// Tenant whose threads, states and approvals the key can access.
    #[serde(default = "main_tenant")]
    pub(crate) tenant: String,
    /// Hash of the key: "sha256:" and 64 hexadecimal digits; or a reference to it.
    pub(crate) hash: SecretSource,
    /// What the key may do.
    #[schemars(length(min = 1))]
    pub(crate) scopes: Vec<Scope>,
    /// Expiry of the key, such as 2027-01-31 or 2027-01-31T12:00:00Z.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        regex(pattern = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2}))?$"),
        extend("format" = "toolhub-moment")
    )]
    pub(crate) expires: Option<String>,
}

fn main_tenant() -> String {
    "main".into()
}

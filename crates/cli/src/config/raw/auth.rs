//! The section `[auth]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub(crate) use toolhub::server::Scope;

use toolhub::config::SecretSource;

/// Who may use the server.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Auth {
    /// Whether clients need a key.
    pub(crate) mode: Mode,
    /// The keys. `toolhub keys create NAME` makes one and prints what to write here.
    pub(crate) keys: Vec<Key>,
}

/// Whether clients need a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// Everybody on this machine may do everything; nobody else reaches the server.
    #[default]
    Local,
    /// A client needs a key, and may do what the key's scopes say.
    Keys,
}

/// One key.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Key {
    /// Whose key it is; rules and limits know the caller by this name.
    #[schemars(length(min = 1, max = 128))]
    pub(crate) name: String,
    /// Whose threads, states and approvals the key reaches.
    #[serde(default = "main_tenant")]
    pub(crate) tenant: String,
    /// The hash of the key: "sha256:" and 64 hexadecimal digits; or where it is found.
    pub(crate) hash: SecretSource,
    /// What the key may do.
    #[schemars(length(min = 1))]
    pub(crate) scopes: Vec<Scope>,
    /// The moment from which the key is refused, such as 2027-01-31 or 2027-01-31T12:00:00Z.
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

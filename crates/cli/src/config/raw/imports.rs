//! The section `[imports]`: tools imported from other descriptions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use toolhub::config::{Connection, RestAuth, SecretSource};

/// Tools imported from other descriptions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Imports {
    /// OpenAPI documents: each operation becomes a tool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) openapi: Vec<OpenApi>,
    /// Configs of other programs whose MCP servers are started too: JSON of Claude, Cursor, VS Code or Gemini, or TOML of Codex. They are
    /// read whenever this config is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) mcp_json: Vec<String>,
    /// Old registries whose tools are offered too: "configs/tools/__registry__.toml". They are read whenever this config is, with a
    /// warning for each adjustment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) registry: Vec<String>,
}

/// An OpenAPI document, version 3.0 or 3.1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OpenApi {
    /// Path of the document, JSON or YAML. `toolhub import openapi` fetches one from a URL.
    pub(crate) spec: String,
    /// Prefix of the tools' names: `prefix__operation`. Default: just `operation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prefix: Option<String>,
    /// Globs over operation names: only these become tools. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) include: Vec<String>,
    /// Globs over operation names: these do not become tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) exclude: Vec<String>,
    /// Only operations with one of these tags become tools. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    /// Only operations with one of these methods become tools, such as `get`. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) methods: Vec<String>,
    /// Base URL of the service, instead of the one in the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base_url: Option<String>,
    /// URL the document was fetched from; relative URLs in it are resolved against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) document_url: Option<String>,
    /// Credentials for the document's security schemes, by scheme name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) credentials: BTreeMap<String, Credential>,
    /// Authentication of requests that no credential applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) auth: Option<RestAuth>,
    /// Hosts that may be reached although their addresses are private or local.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) allow_hosts: Vec<String>,
    /// Connections to the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) connection: Option<Connection>,
    /// Whether calls that are not read-only run without an approval.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) trust: bool,
}

/// Credentials for a security scheme: a token or key; or a user and password; or an OAuth 2 client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Credential {
    /// Token or API key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<SecretSource>,
    /// User name, with `password`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) username: Option<String>,
    /// Password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) password: Option<SecretSource>,
    /// Client id, with `client_secret`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_id: Option<String>,
    /// Client secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_secret: Option<SecretSource>,
}

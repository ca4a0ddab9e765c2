//! The section `[imports]`: tools that are described elsewhere.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use toolhub::config::{Connection, RestAuth, SecretSource};

/// Tools that are described elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Imports {
    /// OpenAPI documents: each operation becomes a tool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) openapi: Vec<OpenApi>,
}

/// One OpenAPI document, of version 3.0 or 3.1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OpenApi {
    /// The file, JSON or YAML. `toolhub import openapi` fetches one from an address.
    pub(crate) spec: String,
    /// Tools are called `prefix__operation`; without it just `operation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prefix: Option<String>,
    /// Globs over names of operations: only these become tools. All where nothing is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) include: Vec<String>,
    /// Globs over names of operations: these become no tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) exclude: Vec<String>,
    /// The address of the service, in place of what the document says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base_url: Option<String>,
    /// Where the document was found; relative addresses in it are joined to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) document_url: Option<String>,
    /// What is given for the security schemes of the document, by their names there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) credentials: BTreeMap<String, Credential>,
    /// How requests show who they are from, where no credential fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) auth: Option<RestAuth>,
    /// Hosts that may be reached although their addresses are private or local.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) allow_hosts: Vec<String>,
    /// Connections to the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) connection: Option<Connection>,
    /// Whether nobody is asked before calls that change something.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) trust: bool,
}

/// What is given for one security scheme: a token or key; or a user and a password; or a client of an OAuth 2 server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Credential {
    /// A token or a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<SecretSource>,
    /// The user, with `password`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) username: Option<String>,
    /// The password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) password: Option<SecretSource>,
    /// The client, with `client_secret`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_id: Option<String>,
    /// Its secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_secret: Option<SecretSource>,
}

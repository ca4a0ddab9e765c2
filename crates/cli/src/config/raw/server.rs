//! The section `[server]`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use toolhub::config::{Size, Time};

/// How the server listens, and what it takes from clients.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Server {
    /// The address to listen on. One that others can reach needs `auth.mode = "keys"` and `allowed_hosts`.
    pub(crate) host: String,
    /// The port; 0 for any that is free.
    pub(crate) port: u16,
    /// The URL that clients use, for links in answers; made of host and port where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) public_url: Option<String>,
    /// The names by which clients may reach the server, without a port. A request that names another host is refused.
    #[schemars(length(min = 1))]
    pub(crate) allowed_hosts: Vec<String>,
    /// Hosts that REST tools made over the API may reach although their addresses are private or local.
    pub(crate) tool_hosts: Vec<String>,
    /// How long the headers of a request may be.
    pub(crate) header_limit: Size,
    /// How long the body of a request may be.
    pub(crate) body_limit: Size,
    /// How long a compressed body may be once it is unpacked.
    pub(crate) decompressed_limit: Size,
    /// How deep JSON may be nested.
    #[schemars(range(min = 1, max = 512))]
    pub(crate) json_depth: u16,
    /// How long a client may take to send the headers.
    pub(crate) header_timeout: Time,
    /// How long a client may take to send the body.
    pub(crate) body_timeout: Time,
    /// How many connections may be open at once.
    #[schemars(range(min = 1))]
    pub(crate) max_connections: u32,
    /// How long running calls may go on after the server was told to end.
    pub(crate) drain_timeout: Time,
}

impl Default for Server {
    fn default() -> Self {
        let seconds = |seconds| Time(Duration::from_secs(seconds));
        Self {
            host: "127.0.0.1".into(),
            port: 8665,
            public_url: None,
            allowed_hosts: ["127.0.0.1", "localhost", "[::1]"].map(String::from).into(),
            tool_hosts: Vec::new(),
            header_limit: Size(16 << 10),
            body_limit: Size(2 << 20),
            decompressed_limit: Size(8 << 20),
            json_depth: 64,
            header_timeout: seconds(10),
            body_timeout: seconds(30),
            max_connections: 4_096,
            drain_timeout: seconds(30),
        }
    }
}

//! The section `[server]`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use toolhub::config::{PositiveDuration, Size};

/// Where the server listens, and its limits for clients.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Server {
    /// Address to listen on. One that other machines can reach requires `auth.mode = "keys"` and `allowed_hosts`.
    pub(crate) host: String,
    /// Port; 0 for any free port.
    pub(crate) port: u16,
    /// URL that clients use, for links in responses. Default: built from host and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) public_url: Option<String>,
    /// Host names by which clients may reach the server, without a port. Requests with another `Host` are refused.
    #[schemars(length(min = 1))]
    pub(crate) allowed_hosts: Vec<String>,
    /// Hosts that REST tools created over the API may reach although their addresses are private or local.
    pub(crate) tool_hosts: Vec<String>,
    /// Maximum size of the headers of a request.
    pub(crate) header_limit: Size,
    /// Maximum size of the body of a request.
    pub(crate) body_limit: Size,
    /// Maximum nesting depth of JSON.
    #[schemars(range(min = 1, max = 512))]
    pub(crate) json_depth: u16,
    /// Maximum number of values in the JSON of a request: objects, lists and scalars, at any depth.
    #[schemars(range(min = 100))]
    pub(crate) json_values: u32,
    /// Timeout for receiving the headers.
    pub(crate) header_timeout: PositiveDuration,
    /// Timeout for receiving the body, and for a client that does not read a response.
    pub(crate) body_timeout: PositiveDuration,
    /// Maximum number of open connections and event streams. Beyond it, connections are closed to make room for new ones.
    #[schemars(range(min = 1))]
    pub(crate) max_connections: u32,
    /// Whether the dashboard is served, at `/ui/`.
    pub(crate) ui: bool,
    /// How long running calls may continue after a shutdown was requested.
    pub(crate) drain_timeout: PositiveDuration,
}

impl Default for Server {
    fn default() -> Self {
        let seconds = |seconds| PositiveDuration(Duration::from_secs(seconds));
        Self {
            host: "127.0.0.1".into(),
            port: 8665,
            public_url: None,
            allowed_hosts: ["127.0.0.1", "localhost", "[::1]"].map(String::from).into(),
            tool_hosts: Vec::new(),
            header_limit: Size(16 << 10),
            body_limit: Size(2 << 20),
            json_depth: 64,
            json_values: 100_000,
            header_timeout: seconds(10),
            body_timeout: seconds(30),
            max_connections: 4_096,
            ui: true,
            drain_timeout: seconds(30),
        }
    }
}

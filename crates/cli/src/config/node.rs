//! What other nodes of a shared store see of this one, a server or a command.
//!
//! In: a config. Out: the name of the node, its address, and a digest by which nodes with different configs are found.

use serde_json::Value;
use toolhub::{NodeInfo, digest};

use super::{LoadedConfig, masked_values};

/// Sections and keys in which the configs of nodes differ on purpose.
const OF_ONE_NODE: [(&str, &[&str]); 2] =
    [("server", &["host", "port", "public_url", "allowed_hosts"]), ("telemetry", &[])];
/// Length of the digest, in hexadecimal digits.
const DIGEST_LEN: usize = 16;

/// The node that a server with this config is.
pub(crate) fn node_info(loaded: &LoadedConfig) -> NodeInfo {
    let (server, host) = (&loaded.config.server, host_name());
    let name = match server.port {
        // The system chooses it when the server starts.
        0 => format!("{host}-{}", std::process::id()),
        port => format!("{host}:{port}"),
    };
    let info = NodeInfo::new(name).config_digest(config_digest(loaded));
    match (server.port, server.host.is_unspecified()) {
        (0, _) => info,
        (port, true) => info.address(format!("http://{host}:{port}")),
        (port, false) => info.address(format!("http://{}", std::net::SocketAddr::new(server.host, port))),
    }
}

/// The node that a command with this config is while it runs. It listens nowhere.
pub(crate) fn command_info(loaded: &LoadedConfig) -> NodeInfo {
    NodeInfo::new(format!("{}-{} (command)", host_name(), std::process::id())).config_digest(config_digest(loaded))
}

/// A digest of what nodes should have in common. Secrets are masked.
pub(crate) fn config_digest(loaded: &LoadedConfig) -> String {
    let mut values = masked_values(loaded);
    for (section, keys) in OF_ONE_NODE {
        match (keys, values.get_mut(section).and_then(Value::as_object_mut)) {
            ([], _) => drop(values.as_object_mut().map(|values| values.remove(section))),
            (keys, Some(values)) => keys.iter().for_each(|key| drop(values.remove(*key))),
            (_, None) => {}
        }
    }
    let mut digest = digest::hash_json(&values);
    digest.truncate(DIGEST_LEN);
    digest
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

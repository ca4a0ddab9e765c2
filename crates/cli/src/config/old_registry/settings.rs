//! `[config]` of a tool, and the places where older files have the same keys.
//!
//! In: the keys of a tool. Out: its settings, by what they mean. Numbers are milliseconds in `[config]` and `customFields`; in other
//! tables nothing says what they are.

use super::{super::tree::Node, findings::Findings, keys::Keys, units::NumberUnit};

/// The settings of a tool, each with the place where it was found.
#[derive(Default)]
pub(super) struct Settings {
    pub(super) base_url: Option<Node>,
    pub(super) headers: Vec<Keys>,
    pub(super) method: Option<Node>,
    pub(super) timeout: Option<(String, Node, NumberUnit)>,
    pub(super) retries: Option<(String, Node)>,
    pub(super) retry_delay: Option<(String, Node, NumberUnit)>,
    pub(super) server_name: Option<Node>,
    pub(super) server_url: Option<Node>,
    /// The name of the tool at its MCP server.
    pub(super) tool: Option<Node>,
    pub(super) api_key: Option<Node>,
    /// The class or function of an older tool.
    pub(super) executor: Option<Node>,
    /// What was not read.
    rest: Vec<(&'static str, Keys)>,
}

/// The tables, in order of precedence, and the unit of their numbers.
const TABLES: [(&str, NumberUnit); 6] = [
    ("config", NumberUnit::Milliseconds),
    ("metadata.customFields", NumberUnit::Milliseconds),
    ("rest_config", NumberUnit::Unknown),
    ("mcp_config", NumberUnit::Unknown),
    ("native_config", NumberUnit::Unknown),
    ("builtin_config", NumberUnit::Unknown),
];

impl Settings {
    pub(super) fn read(keys: &mut Keys, findings: &mut Findings) -> Self {
        let mut settings = Self::default();
        let mut metadata = keys.take_table("metadata", findings).unwrap_or_default();
        settings.executor = metadata.take("executor");
        for (name, unit) in TABLES {
            let table = match name.strip_prefix("metadata.") {
                Some(key) => metadata.take_table(key, findings),
                None => keys.take_table(name, findings),
            };
            if let Some(table) = table {
                settings.read_table(name, unit, table, findings);
            }
        }
        settings.metadata(keys, metadata);
        settings
    }

    /// Puts the rest of the metadata back.
    fn metadata(&self, keys: &mut Keys, metadata: Keys) {
        keys.0.extend(metadata.0.into_iter().map(|(key, node)| (format!("metadata.{key}"), node)));
    }

    fn read_table(&mut self, name: &'static str, unit: NumberUnit, mut table: Keys, findings: &mut Findings) {
        fn first<T>(slot: &mut Option<T>, value: Option<T>) {
            if slot.is_none() {
                *slot = value;
            }
        }
        let path = |key: &str| format!("{name}.{key}");
        first(&mut self.base_url, table.take_any(&["baseUrl", "base_url", "url", "endpoint"]));
        first(&mut self.method, table.take("method"));
        // The camel-case names are those of the newest format, in which a number is milliseconds.
        first(&mut self.timeout, table.take("timeout").map(|node| (path("timeout"), node, unit)));
        first(&mut self.retry_delay, table.take("retryDelay").map(|node| (path("retryDelay"), node, unit)));
        let older_delay = table.take("retry_delay").map(|node| (path("retry_delay"), node, NumberUnit::Unknown));
        first(&mut self.retry_delay, older_delay);
        first(&mut self.retries, table.take_any(&["maxRetries", "max_retries"]).map(|node| (path("maxRetries"), node)));
        first(&mut self.server_name, table.take_any(&["serverName", "server_name"]));
        first(&mut self.server_url, table.take_any(&["serverUrl", "server_url"]));
        first(&mut self.tool, table.take_any(&["tool", "toolName", "tool_name"]));
        first(&mut self.api_key, table.take_any(&["apiKey", "api_key"]));
        self.headers.extend(table.take_table("headers", findings));
        self.rest.push((name, table));
    }

    /// Notes what was not read.
    pub(super) fn finish(self, findings: &mut Findings) {
        let unused = [
            ("the address of the service", self.base_url),
            ("`method`", self.method),
            ("`serverName`", self.server_name),
            ("`serverUrl`", self.server_url),
            ("the name of the tool at a server", self.tool),
            ("the API key", self.api_key),
            ("`executor`", self.executor),
        ];
        for (what, node) in unused {
            if let Some(node) = node {
                findings.note(&node.key_origin, format!("{what} does not apply to the tool and was left out"));
            }
        }
        for (name, keys) in self.rest {
            keys.finish(name, findings);
        }
        for headers in self.headers {
            headers.finish("headers", findings);
        }
    }
}

//! Tools and MCP servers that were sent over the API: their rows in the store.
//!
//! In: a definition as JSON. Out: a row from which it can be read after a restart. `api_requests` checks definitions, `api_tools` and
//! `api_servers` build what is defined.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use toolhub::{
    backend::{
        Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, Row, Scan, Scope, StoreError, Table,
        Write,
    },
    clock::{Clock, SystemClock},
    ids::Tenant,
};

/// Schema version of a row with a definition as it was sent.
const PLAIN_SCHEMA: u32 = 1;
/// Schema version of a row with a sealed definition.
const SEALED_SCHEMA: u32 = 2;

/// The section of a config that a definition would be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Tools,
    McpServers,
}

impl Section {
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::McpServers => "mcp_servers",
        }
    }

    /// What a definition in it is called.
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::McpServers => "MCP server",
        }
    }

    /// What the ids of its rows begin with. The name of a tool has no slash.
    fn id_prefix(self) -> &'static str {
        match self {
            Self::Tools => "",
            Self::McpServers => "mcp_servers/",
        }
    }

    /// The record that a sealed definition belongs to.
    fn sealed_for(self, name: &str) -> String {
        format!("{}/{name}", self.key())
    }
}

/// All stored definitions of a section, by name.
///
/// # Errors
/// When the store fails.
pub(super) async fn load_all(
    store: &Arc<dyn Backend>,
    section: Section,
) -> Result<BTreeMap<String, Value>, StoreError> {
    let mut scan = Scan::new(Table::Tools, Scope::Partition(partition())).prefix(section.id_prefix());
    let mut stored = BTreeMap::new();
    loop {
        let page = store.scan(scan.clone(), SystemClock.now()).await?;
        for (key, row) in page.rows {
            let Some(name) = key.id.strip_prefix(section.id_prefix()).filter(|name| !name.contains('/')) else {
                continue;
            };
            match decode(store, section, name, &row) {
                Some(request) => drop(stored.insert(name.to_owned(), request)),
                None if row.schema == SEALED_SCHEMA => tracing::warn!(
                    name,
                    kind = section.noun(),
                    "cannot decrypt a stored definition: the key file of the store is missing or another one; create it again"
                ),
                None => tracing::warn!(name, kind = section.noun(), "cannot read a stored definition"),
            }
        }
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return Ok(stored),
        }
    }
}

/// One stored definition.
///
/// # Errors
/// When the store fails.
pub(super) async fn load_one(
    store: &Arc<dyn Backend>,
    section: Section,
    name: &str,
) -> Result<Option<Value>, StoreError> {
    load_all(store, section).await.map(|mut stored| stored.remove(name))
}

/// Stores a definition, or removes it if `request` is `None`.
///
/// # Errors
/// When the store fails.
pub(super) async fn save(
    store: &Arc<dyn Backend>,
    section: Section,
    name: &str,
    request: Option<&Value>,
) -> Result<(), StoreError> {
    let change = match request {
        Some(request) => {
            let (text, schema) = encode(store, section, name, request);
            Change::Put { value: text.into_bytes().into(), schema, expires: None }
        }
        None => Change::Remove,
    };
    let id = format!("{}{name}", section.id_prefix());
    let write =
        Write { table: Table::Tools, id: id.into(), expect: Expect::Any, change, durability: Durability::PowerSafe };
    store.commit(Batch::new(partition()).with(write), SystemClock.now()).await.map(drop)
}

/// A definition for the store, and its schema version. That of a request may have a secret anywhere, so it is sealed as a whole.
fn encode(store: &Arc<dyn Backend>, section: Section, name: &str, request: &Value) -> (String, u32) {
    match store.seal_key().filter(|_| request.get("builtin").is_none()) {
        Some(key) => {
            (Value::from(key.seal(&section.sealed_for(name), &request.to_string())).to_string(), SEALED_SCHEMA)
        }
        None => (request.to_string(), PLAIN_SCHEMA),
    }
}

/// The definition in a row; `None` if it cannot be read.
fn decode(store: &Arc<dyn Backend>, section: Section, name: &str, row: &Row) -> Option<Value> {
    match row.schema {
        PLAIN_SCHEMA => serde_json::from_slice(&row.value).ok(),
        SEALED_SCHEMA => {
            let sealed: String = serde_json::from_slice(&row.value).ok()?;
            serde_json::from_str(&store.seal_key()?.unseal(&section.sealed_for(name), &sealed)?).ok()
        }
        _ => None,
    }
}

fn partition() -> Partition {
    Partition { tenant: Tenant::default(), kind: PartitionKind::Tools }
}

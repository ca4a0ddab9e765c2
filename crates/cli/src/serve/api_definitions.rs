//! Tools and MCP servers that were sent over the API: their rows in the store.
//!
//! In: a definition as JSON. Out: a row from which it can be read after a restart and on other nodes. `api_requests` checks definitions,
//! `api_tools` and `api_servers` build what is defined.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use toolhub::{
    backend::{
        Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, Row, RowKey, RowVersion, Scan, Scope,
        StoreError, Table, Write, read_all,
    },
    clock::Timestamp,
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

/// The definitions of a section, by name.
pub(super) type Definitions = BTreeMap<String, Definition>;

/// A definition as it was sent, and the version of its row.
#[derive(Debug, Clone)]
pub(super) struct Definition {
    pub(super) request: Value,
    pub(super) version: RowVersion,
}

/// All definitions of a store.
#[derive(Debug, Clone, Default)]
pub(super) struct Stored {
    pub(super) tools: Definitions,
    pub(super) servers: Definitions,
}

impl Stored {
    pub(super) fn section(&self, section: Section) -> &Definitions {
        match section {
            Section::Tools => &self.tools,
            Section::McpServers => &self.servers,
        }
    }

    pub(super) fn section_mut(&mut self, section: Section) -> &mut Definitions {
        match section {
            Section::Tools => &mut self.tools,
            Section::McpServers => &mut self.servers,
        }
    }
}

/// The row of one definition.
pub(super) struct StoredRow {
    pub(super) version: RowVersion,
    /// `None` if it cannot be read.
    pub(super) request: Option<Value>,
}

/// Loads all definitions that can be read.
///
/// # Errors
/// When the store fails.
pub(super) async fn load_all(store: &Arc<dyn Backend>, now: Timestamp) -> Result<Stored, StoreError> {
    let scan = Scan::new(Table::Tools, Scope::Partition(partition()));
    let mut stored = Stored::default();
    for (key, row) in read_all(&**store, scan, now).await? {
        let (section, name) = match key.id.strip_prefix(Section::McpServers.id_prefix()) {
            Some(name) => (Section::McpServers, name),
            None => (Section::Tools, key.id.as_str()),
        };
        if name.contains('/') {
            continue;
        }
        match decode(store, section, name, &row) {
            Some(request) => {
                let definition = Definition { request, version: row.version };
                stored.section_mut(section).insert(name.to_owned(), definition);
            }
            None if row.schema == SEALED_SCHEMA => tracing::warn!(
                name,
                kind = section.noun(),
                "cannot decrypt a stored definition: the key file of the store is missing or another one; create it again"
            ),
            None => tracing::warn!(name, kind = section.noun(), "cannot read a stored definition"),
        }
    }
    Ok(stored)
}

/// Loads one definition.
///
/// # Errors
/// When the store fails.
pub(super) async fn load_one(
    store: &Arc<dyn Backend>,
    section: Section,
    name: &str,
    now: Timestamp,
) -> Result<Option<StoredRow>, StoreError> {
    let key = RowKey { partition: partition(), table: Table::Tools, id: row_id(section, name).into() };
    let row = store.load(&[key], now).await?.pop().flatten();
    Ok(row.map(|row| StoredRow { version: row.version, request: decode(store, section, name, &row) }))
}

/// Stores a definition in place of the row that was read, or of none. Returns its version.
///
/// # Errors
/// [`StoreError::Conflict`] if the row has changed since; others when the store fails.
pub(super) async fn save(
    store: &Arc<dyn Backend>,
    (section, name): (Section, &str),
    request: &Value,
    before: Option<RowVersion>,
    now: Timestamp,
) -> Result<RowVersion, StoreError> {
    let (text, schema) = encode(store, section, name, request);
    let change = Change::Put { value: text.into_bytes().into(), schema, expires: None };
    let batch = Batch::new(partition()).with(Write {
        table: Table::Tools,
        id: row_id(section, name).into(),
        expect: before.map_or(Expect::Absent, Expect::Same),
        change,
        durability: Durability::PowerSafe,
    });
    let stamp = batch.stamp;
    let versions = store.commit(batch, now).await?;
    Ok(RowVersion { number: versions.first().copied().unwrap_or_default(), stamp })
}

/// Removes a definition, whichever it is by now.
///
/// # Errors
/// When the store fails.
pub(super) async fn remove(
    store: &Arc<dyn Backend>,
    (section, name): (Section, &str),
    now: Timestamp,
) -> Result<(), StoreError> {
    let write = Write {
        table: Table::Tools,
        id: row_id(section, name).into(),
        expect: Expect::Any,
        change: Change::Remove,
        durability: Durability::PowerSafe,
    };
    store.commit(Batch::new(partition()).with(write), now).await.map(drop)
}

fn row_id(section: Section, name: &str) -> String {
    format!("{}{name}", section.id_prefix())
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

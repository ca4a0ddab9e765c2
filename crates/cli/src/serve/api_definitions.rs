//! Tools and MCP servers that were sent over the API: their keys as those of a config, and their rows in the store.
//!
//! In: a definition as JSON. Out: the keys of its section, and rows from which it can be read after a restart. `api_tools` and
//! `api_servers` build what is defined.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};
use toolhub::{
    backend::{
        Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, Row, Scan, Scope, StoreError, Table,
        Write,
    },
    clock::{Clock, SystemClock},
    ids::Tenant,
};

use crate::config::Problem;

/// Schema version of a row with a definition as it was sent.
const PLAIN_SCHEMA: u32 = 1;
/// Schema version of a row with a sealed definition.
const SEALED_SCHEMA: u32 = 2;
/// Keys whose inner keys are free-form, and are not converted to snake case.
const FREE_FORM_KEYS: [&str; 7] = ["body", "form", "headers", "metadata", "parameters", "query", "tokenFields"];
/// Keys of tables by name: the names stay, what is inside them is converted.
const TABLES_BY_NAME: [&str; 1] = ["tools"];

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
    fn noun(self) -> &'static str {
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

/// A problem for a client of the API: without the file and the section of the key.
pub(super) fn format_problem(section: Section, name: &str, problem: &Problem) -> String {
    let section = format!("{}.{name}.", section.key());
    let key = problem.key.strip_prefix(&section).unwrap_or_default();
    let message = problem.message.replace(&section, "");
    let prefix =
        if key.is_empty() || message.contains(&format!("`{key}`")) { String::new() } else { format!("`{key}`: ") };
    match &problem.help {
        Some(help) => format!("{prefix}{message} ({help})"),
        None => format!("{prefix}{message}"),
    }
}

/// Why a secret that refers to something on this machine is refused.
pub(super) const SECRET_REFERENCE: &str =
    "a secret sent over the API must be a string; the server's variables and files are not read";

/// The keys that refer to a variable or file of this machine.
pub(super) fn secret_references(definition: &Map<String, Value>) -> Vec<&'static str> {
    let has_reference = |key: &&str| {
        let members = definition.get(*key).and_then(Value::as_object).into_iter().flatten();
        members.filter(|(name, _)| *name != "token_fields").any(|(_, value)| value.is_object())
    };
    ["auth", "headers"].into_iter().filter(has_reference).collect()
}

/// The JSON pointer of a null in a value: TOML has no null.
pub(super) fn find_null(value: &Value) -> Option<String> {
    let find_below = |key: &str, inner: &Value| find_null(inner).map(|rest| format!("/{key}{rest}"));
    match value {
        Value::Null => Some(String::new()),
        Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| find_below(&index.to_string(), item)),
        Value::Object(members) => members.iter().find_map(|(key, inner)| find_below(key, inner)),
        _ => None,
    }
}

/// The API writes `rateLimit`, a config `rate_limit`. A null in the API means that the key is not set.
pub(super) fn to_config_keys(members: &Map<String, Value>) -> Map<String, Value> {
    let set = members.iter().filter(|(_, value)| !value.is_null());
    set.map(|(key, value)| match value {
        Value::Object(by_name) if TABLES_BY_NAME.contains(&key.as_str()) => {
            let convert =
                |value: &Value| value.as_object().map_or_else(|| value.clone(), |inner| to_config_keys(inner).into());
            (key.clone(), by_name.iter().map(|(name, value)| (name.clone(), convert(value))).collect())
        }
        Value::Object(inner) if !FREE_FORM_KEYS.contains(&key.as_str()) => {
            (to_snake_case(key), to_config_keys(inner).into())
        }
        other => (to_snake_case(key), other.clone()),
    })
    .collect()
}

fn to_snake_case(key: &str) -> String {
    key.chars()
        .flat_map(|c| c.is_ascii_uppercase().then_some('_').into_iter().chain([c.to_ascii_lowercase()]))
        .collect()
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

//! What is remembered of a server: its era, and the definitions of its tools that were seen first or approved.
//!
//! In: definitions. Out: rows of the table `mcp_servers`, one for the server and one per tool, and which definitions differ from
//! them.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use toolhub_core::{
    DefinitionChange,
    backend::{
        Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, Scan, Scope, StoreError, Table, Write,
        read_all,
    },
    clock::Timestamp,
    digest,
    ids::Tenant,
};

use super::{catalog::SentDefinition, era::Era};

/// The layout of the rows.
const LAYOUT: u32 = 1;
/// Number of rows written together.
const BATCH_SIZE: usize = 100;

/// Forgets what is stored of a server: its approved definitions, and its protocol.
///
/// # Errors
/// When the store does not answer.
pub async fn forget_server(store: &Arc<dyn Backend>, server: &str, now: Timestamp) -> Result<(), StoreError> {
    ServerMemory::new(store.clone(), server).forget(now).await
}

/// The rows of one server.
pub(super) struct ServerMemory {
    store: Arc<dyn Backend>,
    server: String,
}

/// What is remembered.
#[derive(Debug, Clone, Default)]
pub(super) struct Remembered {
    pub(super) era: Option<Era>,
    /// The approved definitions by name; `None` if the server was never seen.
    pub(super) pins: Option<BTreeMap<String, SentDefinition>>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct ServerRow {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    era: Option<Era>,
    /// Whether its definitions were stored.
    #[serde(default)]
    is_pinned: bool,
}

#[derive(Serialize, Deserialize)]
struct PinRow {
    name: String,
    definition: SentDefinition,
}

/// A definition that waits for approval.
#[derive(Debug, Clone)]
pub(super) struct PendingDefinition {
    pub(super) name: String,
    pub(super) approved: Option<SentDefinition>,
    pub(super) current: SentDefinition,
}

impl PendingDefinition {
    pub(super) fn change(&self) -> DefinitionChange {
        let differences = match &self.approved {
            Some(approved) => approved.differences(&self.current),
            None => SentDefinition::default().differences(&self.current),
        };
        DefinitionChange {
            name: self.name.clone(),
            is_new: self.approved.is_none(),
            differences,
            digest: self.current.digest(),
        }
    }
}

impl ServerMemory {
    pub(super) fn new(store: Arc<dyn Backend>, server: &str) -> Self {
        Self { store, server: server.to_owned() }
    }

    pub(super) async fn load(&self, now: Timestamp) -> Result<Remembered, StoreError> {
        // The row of the server itself has its name as id, which is a prefix of the others.
        let scan = Scan::new(Table::McpServers, Scope::Partition(partition())).prefix(&self.server);
        let (mut server, mut pins) = (ServerRow::default(), BTreeMap::new());
        for (key, row) in read_all(&*self.store, scan, now).await? {
            match key.id.strip_prefix(self.server.as_str()) {
                Some("") => server = serde_json::from_slice(&row.value).unwrap_or_default(),
                Some(rest) if rest.starts_with('/') => {
                    // A row that cannot be read is no approval: its tool waits for one.
                    if let Ok(PinRow { name, definition }) = serde_json::from_slice(&row.value) {
                        pins.insert(name, definition);
                    }
                }
                _ => {}
            }
        }
        Ok(Remembered { era: server.era, pins: server.is_pinned.then_some(pins) })
    }

    async fn forget(&self, now: Timestamp) -> Result<(), StoreError> {
        let scan = Scan::new(Table::McpServers, Scope::Partition(partition())).prefix(&self.server);
        let rows = read_all(&*self.store, scan, now).await?;
        let ids = rows.into_iter().map(|(key, _)| key.id);
        let own = ids.filter(|id| {
            id.strip_prefix(self.server.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        let remove = |id| Write {
            table: Table::McpServers,
            id,
            expect: Expect::Any,
            change: Change::Remove,
            durability: Durability::PowerSafe,
        };
        for ids in own.collect::<Vec<_>>().chunks(BATCH_SIZE) {
            self.commit(ids.iter().cloned().map(remove).collect(), now).await?;
        }
        Ok(())
    }

    /// Stores the era, and whether the definitions of the server are stored.
    pub(super) async fn save_server(&self, era: Era, is_pinned: bool, now: Timestamp) -> Result<(), StoreError> {
        let row = ServerRow { era: Some(era), is_pinned };
        self.commit(vec![self.put(self.server.clone(), &row)], now).await
    }

    /// Stores definitions as approved.
    pub(super) async fn save_pins(
        &self,
        pins: Vec<(String, SentDefinition)>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut writes = Vec::new();
        for (name, definition) in pins {
            writes.push(self.put(self.pin_id(&name), &PinRow { name, definition }));
            if writes.len() == BATCH_SIZE {
                self.commit(std::mem::take(&mut writes), now).await?;
            }
        }
        self.commit(writes, now).await
    }

    /// The name of a tool may be long and contain anything.
    fn pin_id(&self, tool: &str) -> String {
        format!("{}/{}", self.server, digest::hash_json(&tool.into()))
    }

    fn put(&self, id: String, row: &impl Serialize) -> Write {
        // These rows contain nothing that cannot be serialized.
        let value = serde_json::to_vec(row).unwrap_or_default();
        let change = Change::Put { value: value.into(), schema: LAYOUT, expires: None };
        Write {
            table: Table::McpServers,
            id: id.into(),
            expect: Expect::Any,
            change,
            durability: Durability::PowerSafe,
        }
    }

    async fn commit(&self, writes: Vec<Write>, now: Timestamp) -> Result<(), StoreError> {
        if writes.is_empty() {
            return Ok(());
        }
        self.store.commit(Batch { writes, ..Batch::new(partition()) }, now).await.map(drop)
    }
}

fn partition() -> Partition {
    Partition { tenant: Tenant::default(), kind: PartitionKind::Tools }
}

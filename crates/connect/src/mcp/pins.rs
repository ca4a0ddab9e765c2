//! What is remembered of a server: its era, and the definitions of its tools that were seen first or approved.
//!
//! In: definitions. Out: rows of the table `mcp_servers`, one for the server and one per tool, and which definitions differ from
//! them.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use toolhub_core::{
    DefinitionChange,
    backend::{
        Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, RowVersion, Scan, Scope, StoreError,
        Table, Write, read_all,
    },
    clock::Timestamp,
    digest,
    ids::Tenant,
};

use super::{catalog::SentDefinition, era::Era};

/// The layout of the rows.
const LAYOUT: u32 = 1;
/// Why a definition waits that may be the approved one.
pub(super) const UNREADABLE_PIN: &str = "the stored definition that was approved cannot be read";
/// Number of rows removed together.
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
    /// The approved definitions; `None` if the server was never seen.
    pub(super) pins: Option<Pins>,
    /// The version of the row of the server itself.
    version: Option<RowVersion>,
}

/// The approved definitions of a server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Pins {
    by_name: BTreeMap<String, Pin>,
    /// The rows that cannot be read, by id. They are no approvals.
    unreadable: BTreeMap<String, RowVersion>,
}

#[derive(Debug, Clone, PartialEq)]
struct Pin {
    row: PinRow,
    version: RowVersion,
}

impl Pins {
    /// The definitions that are not approved.
    pub(super) fn pending<'a>(
        &self,
        server: &str,
        definitions: impl Iterator<Item = (&'a str, &'a SentDefinition)>,
    ) -> Vec<PendingDefinition> {
        let approved = |name: &str| self.by_name.get(name).map(|pin| &pin.row.definition);
        let changed = definitions.filter(|(name, definition)| approved(name) != Some(*definition));
        let pending = changed.map(|(name, definition)| {
            let unreadable = self.unreadable.get(&pin_id(server, name)).copied();
            PendingDefinition {
                name: name.to_owned(),
                approved: approved(name).cloned(),
                is_unreadable: unreadable.is_some(),
                changes: self.changes(name),
                current: definition.clone(),
                version: self.by_name.get(name).map(|pin| pin.version).or(unreadable),
            }
        });
        pending.collect()
    }

    /// How often another definition of a tool was approved than the one that was seen first.
    pub(super) fn changes(&self, name: &str) -> u32 {
        self.by_name.get(name).map_or(0, |pin| pin.row.changes)
    }
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PinRow {
    name: String,
    definition: SentDefinition,
    /// How often another definition was approved than the one that was seen first.
    #[serde(default, skip_serializing_if = "is_zero")]
    changes: u32,
}

/// A definition that is to be stored as approved, in place of the row that was read.
#[derive(Debug)]
pub(super) struct NewPin {
    row: PinRow,
    expect: Expect,
}

impl NewPin {
    /// A definition that was seen first.
    pub(super) fn first(name: &str, definition: &SentDefinition) -> Self {
        let row = PinRow { name: name.to_owned(), definition: definition.clone(), changes: 0 };
        Self { row, expect: Expect::Absent }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A definition that waits for approval.
#[derive(Debug, Clone)]
pub(super) struct PendingDefinition {
    pub(super) name: String,
    pub(super) approved: Option<SentDefinition>,
    /// Whether there is an approved one that cannot be read.
    pub(super) is_unreadable: bool,
    changes: u32,
    pub(super) current: SentDefinition,
    /// The version of the approved one.
    version: Option<RowVersion>,
}

impl PendingDefinition {
    /// Whether no definition of this name was approved before.
    pub(super) fn is_new(&self) -> bool {
        self.approved.is_none() && !self.is_unreadable
    }

    /// The row of this definition, once it is approved.
    pub(super) fn approve(&self) -> NewPin {
        let changes = if self.is_new() { 0 } else { self.changes + 1 };
        let row = PinRow { name: self.name.clone(), definition: self.current.clone(), changes };
        NewPin { row, expect: expect(self.version) }
    }

    pub(super) fn change(&self) -> DefinitionChange {
        let differences = match &self.approved {
            Some(approved) => approved.differences(&self.current),
            None => SentDefinition::default().differences(&self.current),
        };
        DefinitionChange { name: self.name.clone(), is_new: self.is_new(), differences, digest: self.current.digest() }
    }
}

impl ServerMemory {
    pub(super) fn new(store: Arc<dyn Backend>, server: &str) -> Self {
        Self { store, server: server.to_owned() }
    }

    pub(super) async fn load(&self, now: Timestamp) -> Result<Remembered, StoreError> {
        // The row of the server itself has its name as id, which is a prefix of the others.
        let scan = Scan::new(Table::McpServers, Scope::Partition(partition())).prefix(&self.server);
        let (mut server, mut version, mut pins) = (ServerRow::default(), None, Pins::default());
        for (key, row) in read_all(&*self.store, scan, now).await? {
            match key.id.strip_prefix(self.server.as_str()) {
                // The server was seen, so that what is not known to be approved waits.
                Some("") => {
                    let unreadable = |_| ServerRow { era: None, is_pinned: true };
                    server = serde_json::from_slice(&row.value).unwrap_or_else(unreadable);
                    version = Some(row.version);
                }
                Some(rest) if rest.starts_with('/') => match serde_json::from_slice(&row.value) {
                    Ok(pin @ PinRow { .. }) => {
                        pins.by_name.insert(pin.name.clone(), Pin { row: pin, version: row.version });
                    }
                    Err(_) => drop(pins.unreadable.insert(key.id.to_string(), row.version)),
                },
                _ => {}
            }
        }
        // The row of the server may be lost, or not written yet when the hub was killed.
        let is_pinned = server.is_pinned || !pins.by_name.is_empty() || !pins.unreadable.is_empty();
        Ok(Remembered { era: server.era, pins: is_pinned.then_some(pins), version })
    }

    async fn forget(&self, now: Timestamp) -> Result<(), StoreError> {
        let scan = Scan::new(Table::McpServers, Scope::Partition(partition())).prefix(&self.server);
        let rows = read_all(&*self.store, scan, now).await?;
        let ids = rows.into_iter().map(|(key, _)| key.id);
        let own = ids.filter(|id| is_of_server(id, &self.server));
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

    /// Stores the era of a server of which this is remembered.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if its row has changed since; others when the store fails.
    pub(super) async fn save_era(&self, era: Era, before: &Remembered, now: Timestamp) -> Result<(), StoreError> {
        let row = ServerRow { era: Some(era), is_pinned: before.pins.is_some() };
        self.commit(vec![self.put(self.server.clone(), &row, expect(before.version))], now).await
    }

    /// Stores the definitions of a server that is seen for the first time as approved: all or none, since what is missing would wait for
    /// approval.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if another node has stored some since; others when the store fails.
    pub(super) async fn save_first(
        &self,
        era: Option<Era>,
        pins: Vec<NewPin>,
        before: &Remembered,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let row = ServerRow { era, is_pinned: true };
        let server = self.put(self.server.clone(), &row, expect(before.version));
        self.commit([server].into_iter().chain(self.pin_writes(pins)).collect(), now).await
    }

    /// Stores definitions as approved: all or none.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if another node has approved one of them or another definition since; others when the store fails.
    pub(super) async fn save_pins(&self, pins: Vec<NewPin>, now: Timestamp) -> Result<(), StoreError> {
        self.commit(self.pin_writes(pins).collect(), now).await
    }

    fn pin_writes(&self, pins: Vec<NewPin>) -> impl Iterator<Item = Write> {
        pins.into_iter().map(|pin| self.put(pin_id(&self.server, &pin.row.name), &pin.row, pin.expect))
    }

    fn put(&self, id: String, row: &impl Serialize, expect: Expect) -> Write {
        // These rows contain nothing that cannot be serialized.
        let value = serde_json::to_vec(row).unwrap_or_default();
        let change = Change::Put { value: value.into(), schema: LAYOUT, expires: None };
        Write { table: Table::McpServers, id: id.into(), expect, change, durability: Durability::PowerSafe }
    }

    async fn commit(&self, writes: Vec<Write>, now: Timestamp) -> Result<(), StoreError> {
        if writes.is_empty() {
            return Ok(());
        }
        self.store.commit(Batch { writes, ..Batch::new(partition()) }, now).await.map(drop)
    }
}

/// Whether a row is the one of this server, or of a tool of it.
pub(super) fn is_of_server(id: &str, server: &str) -> bool {
    id.strip_prefix(server).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn expect(version: Option<RowVersion>) -> Expect {
    version.map_or(Expect::Absent, Expect::Same)
}

/// The id of the row of a tool, whose name may be long and contain anything.
fn pin_id(server: &str, tool: &str) -> String {
    format!("{server}/{}", digest::hash_json(&tool.into()))
}

fn partition() -> Partition {
    Partition { tenant: Tenant::default(), kind: PartitionKind::Tools }
}

//! Lists and counts contexts.
//!
//! In: a tenant and a filter. Out: pages of contexts without their data, and totals. A context exists when one of its
//! states does.

use std::collections::{BTreeMap, HashMap};

use super::StateManager;
use crate::{
    ContextId, ContextInfo, ContextPage, StateError, StateKind, StateStats,
    entry::KindInfo,
    sessions::{SESSION_ROW, Session},
};
use toolhub_storage::backend::{
    Cursor, Partition, PartitionKind, Row, RowKey, RowVersion, Scan, Scope, StoreError, Table,
};
use toolhub_types::{
    ids::{StateName, Tenant, ThreadId},
    timestamp::Timestamp,
};

/// Selects the contexts of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextFilter {
    /// Only those of this state.
    pub tool_type: Option<StateName>,
    /// Only those of this thread.
    pub thread: Option<ThreadId>,
    /// Approximate page size; the default is 100. A page may hold fewer contexts, even none, without being the last.
    pub limit: usize,
}

impl Default for ContextFilter {
    fn default() -> Self {
        Self { tool_type: None, thread: None, limit: 100 }
    }
}

impl StateManager {
    /// The current row version of each of these states in a thread.
    #[doc(hidden)]
    pub async fn row_versions(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        names: &[StateName],
    ) -> Result<Vec<(StateName, Option<RowVersion>)>, StoreError> {
        let key = |name| self.context(name, thread).key(tenant, StateKind::Business);
        let keys: Vec<RowKey> = names.iter().map(key).collect();
        let mut all = Vec::with_capacity(names.len());
        // Rows of one partition are read together, so that they are consistent.
        for group in keys.chunk_by(|a, b| a.partition == b.partition) {
            let (_, rows) = self.load_in_session(&group[0].partition, group, self.now()).await?;
            all.extend(rows.into_iter().map(|row| row.map(|row| row.version)));
        }
        Ok(names.iter().cloned().zip(all).collect())
    }

    /// A page of a tenant's contexts, sorted by the name of their state. `cursor` is the `next` of the previous page.
    ///
    /// # Errors
    /// When the cursor does not belong to a list with this filter, or the store fails.
    pub async fn list_contexts(
        &self,
        tenant: &Tenant,
        filter: &ContextFilter,
        cursor: Option<&str>,
    ) -> Result<ContextPage, StateError> {
        let now = self.now();
        let scope = match &filter.thread {
            Some(thread) => Scope::Partition(Partition::for_thread(tenant.clone(), thread.clone())),
            None => Scope::Tenant(tenant.clone()),
        };
        let mut scan = Scan::new(Table::State, scope).limit(filter.limit.max(1));
        if let Some(state) = &filter.tool_type {
            scan = scan.prefix(format!("{state}/"));
        }
        scan.after = cursor.map(|text| decode_cursor(tenant, filter, text)).transpose()?;
        let page = self.0.store.scan(scan, now).await?;
        let found: Vec<(ContextId, &str)> =
            page.rows.iter().filter_map(|(key, _)| ContextId::from_row_key(key)).collect();
        let kinds_by_context = self.load_kinds(tenant, found.iter().map(|(context, _)| context), now).await?;
        let mut contexts = Vec::new();
        for (context, kind) in found {
            let Some(kinds) = kinds_by_context.get(&context) else { continue };
            // A context with several states occurs several times, perhaps on different pages. Its first row counts.
            let first = StateKind::STORED.iter().find(|kind| kinds.contains_key(kind));
            if first.is_some_and(|first| first.as_str() == kind) {
                contexts.extend(ContextInfo::from_kinds(context, kinds.clone()));
            }
        }
        let next = page.next.map(|Cursor(key)| encode_cursor(&key));
        Ok(ContextPage { contexts, next })
    }

    /// Summary of a context, without the data; `None` when it holds no state.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn get_context_info(
        &self,
        tenant: &Tenant,
        context: &ContextId,
    ) -> Result<Option<ContextInfo>, StateError> {
        let mut kinds_by_context = self.load_kinds(tenant, [context].into_iter(), self.now()).await?;
        Ok(kinds_by_context.remove(context).and_then(|kinds| ContextInfo::from_kinds(context.clone(), kinds)))
    }

    /// Totals of a tenant's states, including the connection states of this node.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn stats(&self, tenant: &Tenant) -> Result<StateStats, StateError> {
        let mut stats = StateStats::default();
        let mut count = |kind: StateKind, bytes: usize| {
            *stats.entries.entry(kind).or_default() += 1;
            stats.bytes += bytes;
        };
        let filter = ContextFilter { limit: 10_000, ..ContextFilter::default() };
        let (mut cursor, mut contexts) = (None, 0);
        loop {
            let page = self.list_contexts(tenant, &filter, cursor.as_deref()).await?;
            contexts += page.contexts.len();
            for (kind, info) in page.contexts.iter().flat_map(|context| &context.kinds) {
                if *kind != StateKind::Connection {
                    count(*kind, info.bytes);
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        let now = self.now();
        let connections = self.0.connections.of_tenant(tenant, now);
        let sessions = self.load_sessions(tenant, connections.iter().map(|(context, _)| context), now).await?;
        for (context, info) in connections {
            if session_of(&sessions, &context).covers_connection(info.updated) {
                count(StateKind::Connection, info.bytes);
            }
        }
        stats.contexts = contexts;
        Ok(stats)
    }

    /// The number of states of each kind over all tenants; connection states are those of this node. States of an ended
    /// session count until they are purged. Scans all rows, so call it rarely.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn count(&self) -> Result<BTreeMap<StateKind, u64>, StateError> {
        let now = self.now();
        let mut counts: BTreeMap<StateKind, u64> = StateKind::STORED.map(|kind| (kind, 0)).into();
        counts.insert(StateKind::Connection, self.0.connections.count(now));
        for (id, rows) in self.0.store.count_by_id(now).await? {
            let kind = id.rsplit_once('/').and_then(|(_, kind)| kind.parse().ok());
            if let Some(count) = kind.and_then(|kind: StateKind| counts.get_mut(&kind)).filter(|_| id != SESSION_ROW) {
                *count += rows;
            }
        }
        Ok(counts)
    }

    /// The kinds of state of each of these contexts. The states of one context are consistent with each other.
    async fn load_kinds<'a>(
        &self,
        tenant: &Tenant,
        contexts: impl Iterator<Item = &'a ContextId>,
        now: Timestamp,
    ) -> Result<HashMap<ContextId, BTreeMap<StateKind, KindInfo>>, StateError> {
        let mut loaded: HashMap<ContextId, BTreeMap<StateKind, KindInfo>> = HashMap::new();
        for context in contexts {
            loaded.entry(context.clone()).or_default();
        }
        // Load the sessions before the states: otherwise states of a session that starts in between would be attributed
        // to the ended one.
        let sessions = self.load_sessions(tenant, loaded.keys(), now).await?;
        loaded.retain(|context, _| !session_of(&sessions, context).is_ended());
        let requested: Vec<(ContextId, StateKind)> =
            loaded.keys().flat_map(|context| StateKind::STORED.map(|kind| (context.clone(), kind))).collect();
        let keys: Vec<RowKey> = requested.iter().map(|(context, kind)| context.key(tenant, *kind)).collect();
        let rows = self.0.store.load(&keys, now).await?;
        let mut add_kind = |context: &ContextId, kind, row: Option<&Row>| {
            if let (Some(kinds), Some(row)) = (loaded.get_mut(context), row) {
                kinds.insert(kind, KindInfo::from_row(kind, row));
            }
        };
        for ((context, kind), row) in requested.iter().zip(&rows) {
            add_kind(context, *kind, row.as_ref());
            if *kind == StateKind::Business {
                let connection = self.connection_row(tenant, context, session_of(&sessions, context), now);
                add_kind(context, StateKind::Connection, connection.as_ref());
            }
        }
        Ok(loaded)
    }
}

/// The session a context is part of.
fn session_of(sessions: &HashMap<ThreadId, Session>, context: &ContextId) -> Session {
    context.thread().and_then(|thread| sessions.get(thread)).copied().unwrap_or(Session::Disabled)
}

/// Encodes a cursor: thread and row id. The tenant is not part of it.
fn encode_cursor(key: &RowKey) -> String {
    format!("{}/{}", key.partition.thread().map_or("~", ThreadId::as_str), key.id)
}

/// Decodes a cursor. The row need not exist, and a typed tool may give a state any name.
fn decode_cursor(tenant: &Tenant, filter: &ContextFilter, text: &str) -> Result<Cursor, StateError> {
    let invalid = || StateError::Refused("the cursor does not belong to this list".into());
    let (thread, id) = text.split_once('/').ok_or_else(invalid)?;
    let (state, kind) = id.rsplit_once('/').ok_or_else(invalid)?;
    kind.parse::<StateKind>().map_err(|_| invalid())?;
    let thread = if thread == "~" { None } else { Some(ThreadId::new(thread).map_err(|_| invalid())?) };
    let matches_state = filter.tool_type.as_ref().is_none_or(|name| name.as_str() == state);
    let matches_thread = filter.thread.is_none() || filter.thread == thread;
    // No name begins with the highest character; a store may use it as an end marker.
    if !(matches_state && matches_thread) || state.starts_with(char::MAX) {
        return Err(invalid());
    }
    let kind = thread.map_or_else(|| PartitionKind::State(state.into()), PartitionKind::Thread);
    Ok(Cursor(RowKey { partition: Partition { tenant: tenant.clone(), kind }, table: Table::State, id: id.into() }))
}

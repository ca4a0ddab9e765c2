//! Which contexts there are, and what they hold.
//!
//! In: a tenant, and which of its contexts are wanted. Out: contexts without their data, a page at a time, and all of
//! them counted. A context is there when one of its states is.

use std::collections::{BTreeMap, HashMap};

use super::StateManager;
use crate::state::{
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

/// Which contexts are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextFilter {
    /// Only those of this state.
    pub tool_type: Option<StateName>,
    /// Only those of this thread.
    pub thread: Option<ThreadId>,
    /// At most about this many on a page; 100 where nothing is said. A page may hold fewer, even none, and still not be
    /// the last.
    pub limit: usize,
}

impl Default for ContextFilter {
    fn default() -> Self {
        Self { tool_type: None, thread: None, limit: 100 }
    }
}

impl StateManager {
    /// Which writing of each of these states a thread has now.
    pub(crate) async fn row_versions(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        names: &[StateName],
    ) -> Result<Vec<(StateName, Option<RowVersion>)>, StoreError> {
        let key = |name| self.context(name, thread).key(tenant, StateKind::Business);
        let keys: Vec<RowKey> = names.iter().map(key).collect();
        let mut all = Vec::with_capacity(names.len());
        // Those of one thread are read together: they are of the same moment.
        for group in keys.chunk_by(|a, b| a.partition == b.partition) {
            let (_, rows) = self.load_in_session(&group[0].partition, group, self.now()).await?;
            all.extend(rows.into_iter().map(|row| row.map(|row| row.version)));
        }
        Ok(names.iter().cloned().zip(all).collect())
    }

    /// A page of a tenant's contexts, in the order of their states. `cursor` is the `next` of the page before.
    ///
    /// # Errors
    /// When the cursor is not of a list with this filter, or the store does not answer.
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
        let held = self.load_kinds(tenant, found.iter().map(|(context, _)| context), now).await?;
        let mut contexts = Vec::new();
        for (context, kind) in found {
            let Some(kinds) = held.get(&context) else { continue };
            // A context with several states is met several times, perhaps on different pages. Its first row counts.
            let first = StateKind::STORED.iter().find(|kind| kinds.contains_key(kind));
            if first.is_some_and(|first| first.as_str() == kind) {
                contexts.extend(ContextInfo::from_kinds(context, kinds.clone()));
            }
        }
        let next = page.next.map(|Cursor(key)| encode_cursor(&key));
        Ok(ContextPage { contexts, next })
    }

    /// What a context holds, without the data; `None` when that is nothing.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn get_context_info(
        &self,
        tenant: &Tenant,
        context: &ContextId,
    ) -> Result<Option<ContextInfo>, StateError> {
        let mut held = self.load_kinds(tenant, [context].into_iter(), self.now()).await?;
        Ok(held.remove(context).and_then(|kinds| ContextInfo::from_kinds(context.clone(), kinds)))
    }

    /// How much a tenant's tools remember, live connections of this node among it.
    ///
    /// # Errors
    /// When the store does not answer.
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
        let live = self.0.connections.of_tenant(tenant, now);
        let sessions = self.load_sessions(tenant, live.iter().map(|(context, _)| context), now).await?;
        for (context, info) in live {
            if session_of(&sessions, &context).covers(info.created) {
                count(StateKind::Connection, info.bytes);
            }
        }
        stats.contexts = contexts;
        Ok(stats)
    }

    /// How many states of each kind are kept for all tenants together; the live connections are those of this node. What a
    /// session left behind counts until it is cleared away. Walks all of what is kept, so ask now and then.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn count(&self) -> Result<BTreeMap<StateKind, u64>, StateError> {
        let now = self.now();
        let mut many: BTreeMap<StateKind, u64> = StateKind::STORED.map(|kind| (kind, 0)).into();
        many.insert(StateKind::Connection, self.0.connections.count(now));
        for (id, rows) in self.0.store.count_by_id(now).await? {
            let kind = id.rsplit_once('/').and_then(|(_, kind)| kind.parse().ok());
            if let Some(many) = kind.and_then(|kind: StateKind| many.get_mut(&kind)).filter(|_| id != SESSION_ROW) {
                *many += rows;
            }
        }
        Ok(many)
    }

    /// What each of these contexts holds. The states of one context are of the same moment.
    async fn load_kinds<'a>(
        &self,
        tenant: &Tenant,
        contexts: impl Iterator<Item = &'a ContextId>,
        now: Timestamp,
    ) -> Result<HashMap<ContextId, BTreeMap<StateKind, KindInfo>>, StateError> {
        let mut held: HashMap<ContextId, BTreeMap<StateKind, KindInfo>> = HashMap::new();
        for context in contexts {
            held.entry(context.clone()).or_default();
        }
        // Before the states: those of a session that begins after this are not taken for those of one that was over.
        let sessions = self.load_sessions(tenant, held.keys(), now).await?;
        held.retain(|context, _| !session_of(&sessions, context).is_ended());
        let wanted: Vec<(ContextId, StateKind)> =
            held.keys().flat_map(|context| StateKind::STORED.map(|kind| (context.clone(), kind))).collect();
        let keys: Vec<RowKey> = wanted.iter().map(|(context, kind)| context.key(tenant, *kind)).collect();
        let rows = self.0.store.load(&keys, now).await?;
        let mut note = |context: &ContextId, kind, row: Option<&Row>| {
            if let (Some(kinds), Some(row)) = (held.get_mut(context), row) {
                kinds.insert(kind, KindInfo::from_row(kind, row));
            }
        };
        for ((context, kind), row) in wanted.iter().zip(&rows) {
            note(context, *kind, row.as_ref());
            if *kind == StateKind::Business {
                let live = self.connection_row(tenant, context, session_of(&sessions, context), now);
                note(context, StateKind::Connection, live.as_ref());
            }
        }
        Ok(held)
    }
}

/// The session a context is part of.
fn session_of(sessions: &HashMap<ThreadId, Session>, context: &ContextId) -> Session {
    context.thread().and_then(|thread| sessions.get(thread)).copied().unwrap_or(Session::Disabled)
}

/// A place in the list as text: where the row lies, and its id. Whose list it is, is not in it.
fn encode_cursor(key: &RowKey) -> String {
    format!("{}/{}", key.partition.thread().map_or("~", ThreadId::as_str), key.id)
}

/// The place a text names. The row need not exist, nor be one of ours: a typed tool may give a state any name.
fn decode_cursor(tenant: &Tenant, filter: &ContextFilter, text: &str) -> Result<Cursor, StateError> {
    let wrong = || StateError::Refused("the cursor is not of this list".into());
    let (place, id) = text.split_once('/').ok_or_else(wrong)?;
    let (state, kind) = id.rsplit_once('/').ok_or_else(wrong)?;
    kind.parse::<StateKind>().map_err(|_| wrong())?;
    let thread = if place == "~" { None } else { Some(ThreadId::new(place).map_err(|_| wrong())?) };
    let of_state = filter.tool_type.as_ref().is_none_or(|wanted| wanted.as_str() == state);
    let of_thread = filter.thread.is_none() || filter.thread == thread;
    // No name begins with the last of all characters; a store may use it to mark the end of its list.
    if !(of_state && of_thread) || state.starts_with(char::MAX) {
        return Err(wrong());
    }
    let place = thread.map_or_else(|| PartitionKind::State(state.into()), PartitionKind::Thread);
    Ok(Cursor(RowKey {
        partition: Partition { tenant: tenant.clone(), kind: place },
        table: Table::State,
        id: id.into(),
    }))
}

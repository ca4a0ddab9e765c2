//! State access from outside a call: for operators, adapters and the API.
//!
//! In: a tenant, a context and an operation. Out: entries and versions. Independent of the backend: a write, its
//! snapshot and its history entry are one batch, so they are committed atomically. A tool's typed state is in the same
//! rows; the pipeline reads and commits it.

mod condition;
mod connection_hold;
mod deletion;
mod draft;
mod export;
mod history;
mod import;
mod limits;
mod list;
mod session;
mod watch;
mod write;

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;
use smol_str::SmolStr;

pub use condition::StateCondition;
pub use connection_hold::ConnectionHold;
pub use draft::{ConflictOutcome, ExecutionHistory};
pub use list::ContextFilter;
pub use watch::{StateChange, StateChanges};

use super::{
    ContextId, SessionState, StateEntry, StateError, StateKind, StateLimits,
    connection_states::ConnectionStates,
    data,
    entry::state_id,
    history::HistoryWriter,
    sessions::{Session, Sessions},
    store_router::StoreRouter,
};
use toolhub_storage::{
    backend::{Backend, Batch, Change, Durability, Expect, Row, Scan, Scope, StoreError, Table, Write},
    clock::Clock,
};
use toolhub_types::{
    ids::{StateName, Tenant, ThreadId},
    outcome::WriteDurability,
    redact::Redactor,
    state_config::{BusinessStateConfig, StateManagerConfig},
    timestamp::Timestamp,
};

/// The layout version of states written as JSON. Typed states use the version of their type instead.
const LAYOUT: u32 = 1;
/// Maximum attempts of an optimistic write. Of the writers in conflict one always succeeds, so a hundred concurrent
/// writers do not exhaust it.
const MAX_ATTEMPTS: usize = 1_000;
/// Number of rows read or removed per batch.
const BATCH_SIZE: usize = 100;

/// The states of tools, by context and kind. Cheap to clone; all clones share the same data.
#[derive(Clone)]
pub struct StateManager(Arc<Inner>);
toolhub_storage::brief_debug!("StateManager" StateManager);

struct Inner {
    store: StoreRouter,
    clock: Arc<dyn Clock>,
    connections: ConnectionStates,
    history: HistoryWriter,
    /// `None` when sessions are not configured.
    sessions: Option<Sessions>,
    /// The limits that tools set for their states.
    limits: ArcSwap<HashMap<StateName, StateLimits>>,
    business: BusinessStateConfig,
    config: StateManagerConfig,
}

impl StateManager {
    #[doc(hidden)]
    pub fn new(
        store: StoreRouter,
        clock: Arc<dyn Clock>,
        (business, config): (BusinessStateConfig, StateManagerConfig),
        redactor: Arc<Redactor>,
    ) -> Self {
        let (connections, history, sessions) =
            (ConnectionStates::default(), HistoryWriter::new(redactor), Sessions::from_config(&config));
        let limits = ArcSwap::default();
        Self(Arc::new(Inner { store, clock, connections, history, sessions, limits, business, config }))
    }

    #[doc(hidden)]
    pub fn store_router(&self) -> &StoreRouter {
        &self.0.store
    }

    /// Whether a write to a context is durable when it is acknowledged.
    #[must_use]
    pub fn durability(&self, context: &ContextId) -> WriteDurability {
        let is_write_behind = self.0.store.store_for(context.state().as_str()).is_write_behind();
        if is_write_behind { WriteDurability::WriteBehind } else { WriteDurability::Durable }
    }

    /// Whether the store of a context acknowledged the batch with this stamp although too few replicas had it.
    #[doc(hidden)]
    #[must_use]
    pub fn lacks_replicas(&self, context: &ContextId, stamp: u64) -> bool {
        self.0.store.store_for(context.state().as_str()).lacks_replicas(stamp)
    }

    /// The context of a state in a thread. Deterministic; the context need not exist. All threads of a tenant share one
    /// context when `session_isolation` is off.
    #[must_use]
    pub fn context(&self, state: &StateName, thread: &ThreadId) -> ContextId {
        if self.0.config.session_isolation {
            ContextId::of(thread.clone(), state.clone())
        } else {
            ContextId::shared(state.clone())
        }
    }

    /// As [`context`](Self::context) for an optional thread: without a thread only a shared context exists.
    #[doc(hidden)]
    pub fn context_for(&self, state: &StateName, thread: Option<&ThreadId>) -> Option<ContextId> {
        match thread {
            Some(thread) => Some(self.context(state, thread)),
            None => (!self.0.config.session_isolation).then(|| ContextId::shared(state.clone())),
        }
    }

    /// Creates the context of a state in a thread, unless it exists already.
    ///
    /// # Errors
    /// When the thread's session has reached its limit of states, or the store fails.
    pub async fn create_context(
        &self,
        tenant: &Tenant,
        state: &StateName,
        thread: &ThreadId,
    ) -> Result<ContextId, StateError> {
        let context = self.context(state, thread);
        let (partition, keys) = (context.partition(tenant), [context.key(tenant, StateKind::Session)]);
        for _ in 0..MAX_ATTEMPTS {
            let now = self.now();
            let (session, rows) = self.load_in_session(&partition, &keys, now).await?;
            if rows.iter().any(Option::is_some) {
                self.touch_session(&partition, session, now).await?;
                return Ok(context);
            }
            let session_writes = self.session_writes(&partition, session, &[state.as_str()], now).await?;
            let usage = SessionState { created: now, last_activity: now, calls: 0 };
            let value = toolhub_storage::backend::encode(Table::State, &context.row_id(StateKind::Session), &usage)?;
            let mut batch = Batch::new(partition.clone()).with(Write {
                table: Table::State,
                id: context.row_id(StateKind::Session),
                expect: Expect::Absent,
                change: Change::Put { value, schema: LAYOUT, expires: self.limits(&context).expiry(None, now)? },
                durability: Durability::PowerSafe,
            });
            batch.writes.extend(session_writes);
            match self.0.store.commit(batch, now).await {
                Ok(_) => return Ok(context),
                Err(StoreError::Conflict { .. }) => tokio::task::yield_now().await,
                Err(error) => return Err(error.into()),
            }
        }
        Err(StateError::Conflict { state: state_id(&context, StateKind::Session), found: 0, expected: None })
    }

    /// The stored state; `None` when there is none or it has expired.
    ///
    /// # Errors
    /// When the store fails, or the stored value is not JSON.
    pub async fn get_state(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        kind: StateKind,
    ) -> Result<Option<StateEntry>, StateError> {
        let row = self.load_row(tenant, context, kind, self.now()).await?;
        row.map(|row| StateEntry::from_row(context, kind, &row)).transpose()
    }

    async fn load_row(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        kind: StateKind,
        now: Timestamp,
    ) -> Result<Option<Row>, StoreError> {
        let partition = context.partition(tenant);
        let key = [context.key(tenant, kind)];
        let keys = if kind == StateKind::Connection { &[] } else { &key[..] };
        let (session, mut rows) = self.load_in_session(&partition, keys, now).await?;
        self.touch_session(&partition, session, now).await?;
        let connection = || self.connection_row(tenant, context, session, now);
        Ok(if kind == StateKind::Connection { connection() } else { rows.pop().flatten() })
    }

    /// The state of a connection, unless it was last used in an earlier session.
    fn connection_row(&self, tenant: &Tenant, context: &ContextId, session: Session, now: Timestamp) -> Option<Row> {
        self.0.connections.get(tenant, context, now).filter(|row| session.covers_connection(row.updated))
    }

    /// All rows of a context in a table, including leftovers, sorted by id.
    async fn all_rows(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        table: Table,
        now: Timestamp,
    ) -> Result<Vec<(SmolStr, Row)>, StoreError> {
        let scope = Scope::Partition(context.partition(tenant));
        let scan = Scan::new(table, scope).prefix(context.prefix()).limit(BATCH_SIZE);
        let rows = self.0.store.read_all(scan, now).await?;
        Ok(rows.into_iter().map(|(key, row)| (key.id, row)).collect())
    }

    /// The row ids of its snapshots, including leftovers.
    async fn snapshot_ids(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        now: Timestamp,
    ) -> Result<Vec<SmolStr>, StoreError> {
        Ok(self.all_rows(tenant, context, Table::Versions, now).await?.into_iter().map(|(id, _)| id).collect())
    }

    fn now(&self) -> Timestamp {
        self.0.clock.now()
    }
}

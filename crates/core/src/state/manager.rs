//! What tools remember, for everybody who is not the tool: operators, adapters, the API.
//!
//! In: a tenant, a context and what is to be done. Out: entries and versions. Written once, above any backend: a write,
//! its snapshot and its entry in the history are one batch, so they are true together. A tool's own typed state lies in
//! the same rows and is read and committed by the pipeline.

mod condition;
mod deletion;
mod draft;
mod export;
mod history;
mod import;
mod list;
mod session;
mod watch;
mod write;

use std::{sync::Arc, time::Duration};

use smol_str::SmolStr;

pub use condition::StateCondition;
pub(crate) use draft::{ConflictOutcome, ExecutionHistory};
pub use list::ContextFilter;
pub use watch::{StateChange, StateChanges};

use super::{
    ContextId, SessionState, StateEntry, StateError, StateKind,
    connection_states::ConnectionStates,
    data,
    entry::state_id,
    history::Sequence,
    sessions::{Session, Sessions},
    store_router::StoreRouter,
};
use toolhub_storage::{
    backend::{Backend, Batch, Change, Durability, Expect, Row, Scan, Scope, StoreError, Table, Write},
    clock::Clock,
};
use toolhub_types::{
    ids::{StateName, Tenant, ThreadId},
    outcome::Acknowledged,
    state_config::{BusinessStateConfig, StateManagerConfig},
    timestamp::Timestamp,
};

/// The layout of states that were written as JSON. Typed states have the version of their type there.
const LAYOUT: u32 = 1;
/// How often a write is tried again when others are quicker. Whoever loses, another has won; with a hundred at once
/// nobody loses this often.
const MAX_ATTEMPTS: usize = 1_000;
/// How many rows are read or removed at once.
const BATCH_SIZE: usize = 100;

/// What tools remember, by context and kind. Cheap to clone; all clones are the same.
///
/// ```
/// use serde_json::json;
/// use toolhub_core::{StateKind, ToolHub, ids::{StateName, Tenant, ThreadId}};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let hub = ToolHub::builder().build().await?;
/// let (state, tenant) = (hub.state(), Tenant::default());
/// let cart = state.create_context(&tenant, &StateName::new("cart")?, &ThreadId::new("t1")?).await?;
/// state.set_state(&tenant, &cart, StateKind::Business, json!({"tea": 1}), None).await?;
/// let version = state.update_state(&tenant, &cart, StateKind::Business, json!({"cake": 2})).await?;
/// assert_eq!(version, 2);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct StateManager(Arc<Inner>);

struct Inner {
    store: StoreRouter,
    clock: Arc<dyn Clock>,
    connections: ConnectionStates,
    sequence: Sequence,
    /// Only with a config that asks for them.
    sessions: Option<Sessions>,
    business: BusinessStateConfig,
    config: StateManagerConfig,
}

impl StateManager {
    pub(crate) fn new(
        store: StoreRouter,
        clock: Arc<dyn Clock>,
        business: BusinessStateConfig,
        config: StateManagerConfig,
    ) -> Self {
        let (live, sequence, sessions) =
            (ConnectionStates::default(), Sequence::default(), Sessions::from_config(&config));
        Self(Arc::new(Inner { store, clock, connections: live, sequence, sessions, business, config }))
    }

    /// Which store keeps which state.
    pub(crate) fn store_router(&self) -> &StoreRouter {
        &self.0.store
    }

    /// Whether what is written to a context is durable when it is acknowledged.
    #[must_use]
    pub fn durability(&self, context: &ContextId) -> Acknowledged {
        let behind = self.0.store.store_for(context.state().as_str()).is_write_behind();
        if behind { Acknowledged::Behind } else { Acknowledged::Durable }
    }

    /// The context of a state in a thread: always the same, whether or not anything is there. All threads of a tenant
    /// have the same one when `session_isolation` is off.
    #[must_use]
    pub fn context(&self, state: &StateName, thread: &ThreadId) -> ContextId {
        if self.0.config.session_isolation {
            ContextId::of(thread.clone(), state.clone())
        } else {
            ContextId::shared(state.clone())
        }
    }

    /// The same where there may be no thread: then there is a context only if all threads share it.
    pub(crate) fn context_for(&self, state: &StateName, thread: Option<&ThreadId>) -> Option<ContextId> {
        match thread {
            Some(thread) => Some(self.context(state, thread)),
            None => (!self.0.config.session_isolation).then(|| ContextId::shared(state.clone())),
        }
    }

    /// Makes the context of a state in a thread, unless it is there already.
    ///
    /// # Errors
    /// When the thread's session has no room for it, or the store does not answer.
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
            let joined = self.session_writes(&partition, session, &[state.as_str()], now).await?;
            let used = SessionState { created: now, last_activity: now, calls: 0 };
            let value = toolhub_storage::backend::encode(Table::State, &context.row_id(StateKind::Session), &used)?;
            let mut batch = Batch::new(partition.clone()).with(Write {
                table: Table::State,
                id: context.row_id(StateKind::Session),
                expect: Expect::Absent,
                change: Change::Put { value, schema: LAYOUT, expires: self.expiry(None, now)? },
                durability: Durability::PowerSafe,
            });
            batch.writes.extend(joined);
            match self.0.store.commit(batch, now).await {
                Ok(_) => return Ok(context),
                Err(StoreError::Conflict { .. }) => tokio::task::yield_now().await,
                Err(error) => return Err(error.into()),
            }
        }
        Err(StateError::Conflict { state: state_id(&context, StateKind::Session), found: 0 })
    }

    /// What is remembered; `None` where there is nothing, or it has expired.
    ///
    /// # Errors
    /// When the store does not answer, or what it holds is no JSON.
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
        let live = || self.connection_row(tenant, context, session, now);
        Ok(if kind == StateKind::Connection { live() } else { rows.pop().flatten() })
    }

    /// What is known of a connection, if it was made in this session.
    fn connection_row(&self, tenant: &Tenant, context: &ContextId, session: Session, now: Timestamp) -> Option<Row> {
        self.0.connections.get(tenant, context, now).filter(|row| session.covers(row.created))
    }

    /// All rows of a context in a table, left over or not, in the order of their ids.
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

    /// The ids of its snapshots, left over or not.
    async fn snapshot_ids(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        now: Timestamp,
    ) -> Result<Vec<SmolStr>, StoreError> {
        Ok(self.all_rows(tenant, context, Table::Versions, now).await?.into_iter().map(|(id, _)| id).collect())
    }

    /// When something written now ceases to exist.
    fn expiry(&self, ttl: Option<Duration>, now: Timestamp) -> Result<Option<Timestamp>, StateError> {
        /// Longer is as good as for ever, and still a time that every store can hold.
        const MAX_TTL: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
        match ttl.or(self.0.config.ttl) {
            Some(ttl) if ttl.as_millis() == 0 => {
                Err(StateError::Refused("a time to live is at least one millisecond".into()))
            }
            ttl => Ok(ttl.map(|ttl| now + ttl.min(MAX_TTL))),
        }
    }

    /// How many snapshots are kept.
    fn max_snapshots(&self) -> usize {
        if self.0.business.versioning { self.0.business.max_versions } else { 0 }
    }

    fn now(&self) -> Timestamp {
        self.0.clock.now()
    }
}

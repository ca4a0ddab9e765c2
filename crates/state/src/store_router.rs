//! Routes state requests to the store that holds each state.
//!
//! In: the manager types that the hub and the tools configure, and the requests of `StateManager`. Out: the same
//! requests at the right store. A row id begins with the state's name, so the router decides by row id. The default is
//! the hub's own store.

use std::{
    collections::{BTreeMap, HashMap},
    error::Error,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use futures_core::future::BoxFuture;
use smol_str::SmolStr;

use super::StateSettings;
use toolhub_storage::backend::{
    Backend, Batch, Cursor, Memory, Page, Row, RowKey, Scan, StoreError, StoreMeters, Table, TimeoutBackend, read_pages,
};
use toolhub_types::{
    ids::{StateName, ThreadKey},
    state_config::{BusinessStateConfig, ManagerType, StateManagerConfig},
    timestamp::Timestamp,
};

/// Opens the store of a configuration.
pub type OpenStore = dyn Fn(&StateManagerConfig, &BusinessStateConfig) -> Result<Arc<dyn Backend>, Box<dyn Error + Send + Sync>>
    + Send
    + Sync;

/// Knows the rows of threads, which are in the hub's store.
pub trait ThreadRows: Send + Sync {
    /// The thread into whose partition the batch puts rows, if it is one that must be stored.
    fn thread_with_new_rows(&self, batch: &Batch) -> Option<ThreadKey>;

    /// Stores the row of a thread before a batch of it is committed to another store.
    fn before_commit<'a>(&'a self, owner: &'a ThreadKey, now: Timestamp) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Stores it again if the thread was deleted meanwhile, because the rows of the batch outlived it.
    fn after_commit<'a>(&'a self, owner: &'a ThreadKey, now: Timestamp) -> BoxFuture<'a, ()>;
}

/// The stores of states.
pub struct StoreRouter {
    /// The store of call records.
    hub_store: Arc<dyn Backend>,
    thread_rows: Arc<dyn ThreadRows>,
    /// The store of every state whose tools configure no manager type.
    default_store: Arc<dyn Backend>,
    /// The stores of the other states, by state name.
    overrides: ArcSwap<HashMap<SmolStr, Arc<dyn Backend>>>,
    /// One store per manager type, opened on first use.
    opened: Mutex<HashMap<ManagerType, Arc<dyn Backend>>>,
    open_store: Option<Arc<OpenStore>>,
    meters: Arc<StoreMeters>,
    config: (StateManagerConfig, BusinessStateConfig),
}
toolhub_storage::brief_debug!("StoreRouter" StoreRouter);

impl StoreRouter {
    /// A router over the hub's store; `is_explicit` when the application passed that store.
    pub fn new(
        (hub_store, is_explicit): (Arc<dyn Backend>, bool),
        thread_rows: Arc<dyn ThreadRows>,
        meters: Arc<StoreMeters>,
        open_store: Option<Arc<OpenStore>>,
        manager: StateManagerConfig,
        business: BusinessStateConfig,
    ) -> Result<Self, String> {
        let manager_type = manager.manager_type;
        let mut router = Self {
            default_store: hub_store.clone(),
            hub_store,
            thread_rows,
            overrides: ArcSwap::default(),
            opened: Mutex::default(),
            open_store,
            meters,
            config: (manager, business),
        };
        match manager_type {
            None | Some(ManagerType::Session) => {}
            // The hub's default store is in memory too, and commits states together with their calls.
            Some(ManagerType::Memory) if !is_explicit => {
                router.lock().insert(ManagerType::Memory, router.hub_store.clone());
            }
            Some(manager) => router.default_store = router.open(manager)?,
        }
        Ok(router)
    }

    /// The store of a manager type, opened on first use.
    pub fn open(&self, manager: ManagerType) -> Result<Arc<dyn Backend>, String> {
        let mut opened = self.lock();
        if let Some(store) = opened.get(&manager) {
            return Ok(store.clone());
        }
        let store: Arc<dyn Backend> = match manager {
            ManagerType::Memory => Arc::new(Memory::new()),
            ManagerType::Session => return Err(NO_SESSION.into()),
            ManagerType::Persistent | ManagerType::Distributed => {
                let open_store = self.open_store.as_ref().ok_or_else(|| {
                    "no store factory is configured; pass one to the hub builder with `.state_store_factory(…)`"
                        .to_owned()
                })?;
                let config = StateManagerConfig { manager_type: Some(manager), ..self.config.0.clone() };
                let store = open_store(&config, &self.config.1).map_err(|error| error.to_string())?;
                Arc::new(TimeoutBackend::new(store, &self.meters))
            }
        };
        opened.insert(manager, store.clone());
        Ok(store)
    }

    /// Checks that a tool may have this manager type, and opens its store; or returns the reason why not.
    pub fn check(&self, rules: &StateSettings) -> Result<(), String> {
        let Some(manager) = rules.manager else { return Ok(()) };
        if self.config.0.manager_type == Some(ManagerType::Session) {
            return Err(
                "the hub uses `manager_type = session`, which applies to whole threads, so no tool can set its own \
                        `manager_type`"
                    .into(),
            );
        }
        self.open(manager).map(|_| ())
    }

    /// Assigns these states to the stores of their tools' manager types, or to the default store. A state that no tool
    /// uses any more keeps its store.
    pub fn assign_stores(&self, manager_types: &HashMap<StateName, Option<ManagerType>>) {
        let mut next = HashMap::clone(&self.overrides.load());
        for (name, manager) in manager_types {
            // `check` opened the store when the tool was registered.
            let store = manager.and_then(|manager| self.open(manager).ok());
            match store.filter(|store| !Arc::ptr_eq(store, &self.default_store)) {
                Some(store) => next.insert(name.as_str().into(), store),
                None => next.remove(name.as_str()),
            };
        }
        self.overrides.store(Arc::new(next));
    }

    /// The store of a state.
    pub(crate) fn store_for(&self, state: &str) -> Arc<dyn Backend> {
        self.overrides.load().get(state).unwrap_or(&self.default_store).clone()
    }

    /// Whether a state is in the hub's store, and so committed in one batch with the calls that write it.
    pub fn is_in_hub_store(&self, state: &str) -> bool {
        Arc::ptr_eq(self.overrides.load().get(state).unwrap_or(&self.default_store), &self.hub_store)
    }

    /// The stores of states that are not the hub's own.
    pub fn non_hub_stores(&self) -> Vec<Arc<dyn Backend>> {
        self.all_stores().into_iter().filter(|store| !Arc::ptr_eq(store, &self.hub_store)).collect()
    }

    fn all_stores(&self) -> Vec<Arc<dyn Backend>> {
        let mut all = vec![self.default_store.clone()];
        for store in self.overrides.load().values() {
            if !all.iter().any(|other| Arc::ptr_eq(other, store)) {
                all.push(store.clone());
            }
        }
        all
    }

    /// The store of all these rows, if they share one.
    fn single_store_for<'a>(&self, mut ids: impl Iterator<Item = &'a SmolStr>) -> Option<Arc<dyn Backend>> {
        let first = ids.next().filter(|_| !self.overrides.load().is_empty());
        let Some(first) = first else { return Some(self.default_store.clone()) };
        let store = self.store_for(state_of_row(first));
        ids.all(|id| Arc::ptr_eq(&self.store_for(state_of_row(id)), &store)).then_some(store)
    }

    /// As [`Backend::load`], each key from the store that holds it.
    pub async fn load(&self, keys: &[RowKey], now: Timestamp) -> Result<Vec<Option<Row>>, StoreError> {
        match self.single_store_for(keys.iter().map(|key| &key.id)) {
            Some(store) => store.load(keys, now).await,
            None => self.load_across_stores(keys, now).await,
        }
    }

    /// As [`Backend::commit`]; refused when the rows are in different stores. The thread of the rows is stored first, if they
    /// are not in the store that holds the threads, and again if it was deleted meanwhile.
    pub async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        match self.single_store_for(batch.writes.iter().map(|write| &write.id)) {
            Some(store) => {
                let is_elsewhere = !Arc::ptr_eq(&store, &self.hub_store);
                let owner = is_elsewhere.then(|| self.thread_rows.thread_with_new_rows(&batch)).flatten();
                let Some(owner) = owner else { return store.commit(batch, now).await };
                self.thread_rows.before_commit(&owner, now).await?;
                let committed = store.commit(batch, now).await;
                if matches!(committed, Ok(_) | Err(StoreError::Unknown(_))) {
                    self.thread_rows.after_commit(&owner, now).await;
                }
                committed
            }
            None => Err(StoreError::Refused("states of different stores cannot be committed together".into())),
        }
    }

    /// As [`Backend::scan`]; across all stores when the scan covers more than one state.
    pub async fn scan(&self, scan: Scan, now: Timestamp) -> Result<Page, StoreError> {
        match scan.prefix.split_once('/') {
            _ if self.overrides.load().is_empty() => self.default_store.scan(scan, now).await,
            Some((state, _)) => self.store_for(state).scan(scan, now).await,
            None => self.scan_across_stores(scan, now).await,
        }
    }

    /// Every row of a scan.
    pub async fn read_all(&self, scan: Scan, now: Timestamp) -> Result<Vec<(RowKey, Row)>, StoreError> {
        read_pages(scan, |scan| self.scan(scan, now)).await
    }

    /// The number of rows per row id, each state counted in its own store.
    pub async fn count_by_id(&self, now: Timestamp) -> Result<BTreeMap<SmolStr, u64>, StoreError> {
        let mut all = BTreeMap::new();
        for store in self.all_stores() {
            let mut counts = store.count_by_id(Table::State, now).await?;
            // Ignore rows left behind when a state moved to another store.
            counts.retain(|id, _| Arc::ptr_eq(&self.store_for(state_of_row(id)), &store));
            all.append(&mut counts);
        }
        Ok(all)
    }

    async fn load_across_stores(&self, keys: &[RowKey], now: Timestamp) -> Result<Vec<Option<Row>>, StoreError> {
        let mut rows = vec![None; keys.len()];
        for store in self.all_stores() {
            let is_here = |key: &RowKey| Arc::ptr_eq(&self.store_for(state_of_row(&key.id)), &store);
            let indices: Vec<usize> = (0..keys.len()).filter(|index| is_here(&keys[*index])).collect();
            let store_keys: Vec<RowKey> = indices.iter().map(|index| keys[*index].clone()).collect();
            if !store_keys.is_empty() {
                for (index, row) in indices.into_iter().zip(store.load(&store_keys, now).await?) {
                    rows[index] = row;
                }
            }
        }
        Ok(rows)
    }

    /// One merged page of several stores. It ends where the first of their pages ends: rows beyond may be missing.
    async fn scan_across_stores(&self, scan: Scan, now: Timestamp) -> Result<Page, StoreError> {
        let order = |key: &RowKey| (key.id.clone(), key.partition.to_string());
        let is_past = |a: &(SmolStr, String), b: &(SmolStr, String)| if scan.descending { a < b } else { a > b };
        let (mut rows, mut end): (Vec<(RowKey, Row)>, Option<RowKey>) = (Vec::new(), None);
        for store in self.all_stores() {
            let page = store.scan(scan.clone(), now).await?;
            // Ignore rows left behind when a state moved to another store.
            rows.extend(
                page.rows.into_iter().filter(|(key, _)| Arc::ptr_eq(&self.store_for(state_of_row(&key.id)), &store)),
            );
            if let Some(Cursor(next)) = page.next
                && end.as_ref().is_none_or(|end| is_past(&order(end), &order(&next)))
            {
                end = Some(next);
            }
        }
        let last = end.as_ref().map(order);
        rows.retain(|(key, _)| last.as_ref().is_none_or(|last| !is_past(&order(key), last)));
        rows.sort_by_cached_key(|(key, _)| order(key));
        if scan.descending {
            rows.reverse();
        }
        if rows.len() > scan.limit {
            rows.truncate(scan.limit);
            end = rows.last().map(|(key, _)| key.clone());
        }
        Ok(Page { rows, next: end.map(Cursor) })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ManagerType, Arc<dyn Backend>>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const NO_SESSION: &str =
    "`manager_type = session` applies to whole threads, so no tool can have it; set it for the hub";

/// The name of the state a row belongs to.
fn state_of_row(id: &str) -> &str {
    id.split_once('/').map_or(id, |(state, _)| state)
}

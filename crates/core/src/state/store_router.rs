//! Which store keeps which state.
//!
//! In: what the owner and the tools say about managers, then the requests of `StateManager`. Out: the same requests, each at
//! the store that keeps the state. Rows of states begin with the state's name, so a request finds its way by its ids. Where
//! nobody says anything, all of it is the hub's own store.

use std::{
    collections::{BTreeMap, HashMap},
    error::Error,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use smol_str::SmolStr;

use super::StateRules;
use toolhub_storage::backend::{
    Backend, Batch, Cursor, Memory, Page, Row, RowKey, Scan, StoreError, StoreMeters, Table, TimeoutBackend, read_pages,
};
use toolhub_types::{
    ids::StateName,
    state_config::{BusinessStateConfig, ManagerType, StateManagerConfig},
    timestamp::Timestamp,
};

/// Opens the store that a config asks for.
pub(crate) type OpenStore = dyn Fn(&StateManagerConfig, &BusinessStateConfig) -> Result<Arc<dyn Backend>, Box<dyn Error + Send + Sync>>
    + Send
    + Sync;

/// The stores of states.
pub(crate) struct StoreRouter {
    /// Where calls are recorded.
    hub_store: Arc<dyn Backend>,
    /// Of every state whose tools say nothing.
    default_store: Arc<dyn Backend>,
    /// Of the others.
    overrides: ArcSwap<HashMap<SmolStr, Arc<dyn Backend>>>,
    /// Each manager has one store, opened when the first asks for it.
    opened: Mutex<HashMap<ManagerType, Arc<dyn Backend>>>,
    open_store: Option<Arc<OpenStore>>,
    meters: Arc<StoreMeters>,
    config: (StateManagerConfig, BusinessStateConfig),
}

impl StoreRouter {
    /// The homes of a hub with this store; `given` says that its owner chose it.
    pub(crate) fn new(
        (hub, given): (Arc<dyn Backend>, bool),
        meters: Arc<StoreMeters>,
        opens: Option<Arc<OpenStore>>,
        manager: StateManagerConfig,
        business: BusinessStateConfig,
    ) -> Result<Self, String> {
        let (usual, chosen) = (hub.clone(), manager.manager_type);
        let (others, opened) = (ArcSwap::default(), Mutex::default());
        let mut homes = Self {
            hub_store: hub,
            default_store: usual,
            overrides: others,
            opened,
            open_store: opens,
            meters,
            config: (manager, business),
        };
        match chosen {
            None | Some(ManagerType::Session) => {}
            // The hub's own memory is as good as another, and commits states with their calls.
            Some(ManagerType::Memory) if !given => {
                homes.lock().insert(ManagerType::Memory, homes.hub_store.clone());
            }
            Some(manager) => homes.default_store = homes.open(manager)?,
        }
        Ok(homes)
    }

    /// The store of a manager.
    pub(crate) fn open(&self, manager: ManagerType) -> Result<Arc<dyn Backend>, String> {
        let mut opened = self.lock();
        if let Some(store) = opened.get(&manager) {
            return Ok(store.clone());
        }
        let store: Arc<dyn Backend> = match manager {
            ManagerType::Memory => Arc::new(Memory::new()),
            ManagerType::Session => return Err(NO_SESSION.into()),
            ManagerType::Persistent | ManagerType::Distributed => {
                let opens = self.open_store.as_ref().ok_or_else(|| {
                    "nothing here can open a store on disk; hand the hub something that can with `.managers(…)`"
                        .to_owned()
                })?;
                let config = StateManagerConfig { manager_type: Some(manager), ..self.config.0.clone() };
                let store = opens(&config, &self.config.1).map_err(|error| error.to_string())?;
                Arc::new(TimeoutBackend::new(store, &self.meters))
            }
        };
        opened.insert(manager, store.clone());
        Ok(store)
    }

    /// Whether tools may have managers of their own, and this one; or why not.
    pub(crate) fn check(&self, rules: &StateRules) -> Result<(), String> {
        let Some(manager) = rules.manager else { return Ok(()) };
        if self.config.0.manager_type == Some(ManagerType::Session) {
            return Err(
                "the hub keeps states in sessions, which are of whole threads, so no tool has a `manager_type` \
                        of its own"
                    .into(),
            );
        }
        self.open(manager).map(|_| ())
    }

    /// From now on these states are where their tools say, or where all others are. A state that no tool has any more stays
    /// where it is.
    pub(crate) fn assign_stores(&self, said: &HashMap<StateName, Option<ManagerType>>) {
        let mut next = HashMap::clone(&self.overrides.load());
        for (name, manager) in said {
            // Opened when the tool was checked.
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

    /// Whether a state is committed together with the calls that write it.
    pub(crate) fn is_in_hub_store(&self, state: &str) -> bool {
        Arc::ptr_eq(self.overrides.load().get(state).unwrap_or(&self.default_store), &self.hub_store)
    }

    /// The stores of states that are not the hub's own.
    pub(crate) fn non_hub_stores(&self) -> Vec<Arc<dyn Backend>> {
        self.all_stores().into_iter().filter(|store| !Arc::ptr_eq(store, &self.hub_store)).collect()
    }

    fn all_stores(&self) -> Vec<Arc<dyn Backend>> {
        let mut all = vec![self.default_store.clone()];
        for store in self.overrides.load().values() {
            if !all.iter().any(|known| Arc::ptr_eq(known, store)) {
                all.push(store.clone());
            }
        }
        all
    }

    /// The store of all these rows, if it is one.
    fn single_store_for<'a>(&self, mut ids: impl Iterator<Item = &'a SmolStr>) -> Option<Arc<dyn Backend>> {
        let first = ids.next().filter(|_| !self.overrides.load().is_empty());
        let Some(first) = first else { return Some(self.default_store.clone()) };
        let store = self.store_for(state_of_row(first));
        ids.all(|id| Arc::ptr_eq(&self.store_for(state_of_row(id)), &store)).then_some(store)
    }

    /// As a store answers, each key by the one that keeps it.
    pub(crate) async fn load(&self, keys: &[RowKey], now: Timestamp) -> Result<Vec<Option<Row>>, StoreError> {
        match self.single_store_for(keys.iter().map(|key| &key.id)) {
            Some(store) => store.load(keys, now).await,
            None => self.load_across_stores(keys, now).await,
        }
    }

    /// As a store does; refused where no single one keeps all of it.
    pub(crate) async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        match self.single_store_for(batch.writes.iter().map(|write| &write.id)) {
            Some(store) => store.commit(batch, now).await,
            None => Err(StoreError::Refused("states of different stores cannot be committed together".into())),
        }
    }

    /// As a store does, over all of them where the scan is for more than one state.
    pub(crate) async fn scan(&self, scan: Scan, now: Timestamp) -> Result<Page, StoreError> {
        match scan.prefix.split_once('/') {
            _ if self.overrides.load().is_empty() => self.default_store.scan(scan, now).await,
            Some((state, _)) => self.store_for(state).scan(scan, now).await,
            None => self.scan_across_stores(scan, now).await,
        }
    }

    /// Every row of a scan.
    pub(crate) async fn read_all(&self, scan: Scan, now: Timestamp) -> Result<Vec<(RowKey, Row)>, StoreError> {
        read_pages(scan, |scan| self.scan(scan, now)).await
    }

    /// How many rows have each id, each state counted where it is kept.
    pub(crate) async fn count_by_id(&self, now: Timestamp) -> Result<BTreeMap<SmolStr, u64>, StoreError> {
        let mut all = BTreeMap::new();
        for store in self.all_stores() {
            let mut many = store.count_by_id(Table::State, now).await?;
            // What was left behind when a state moved to another store is not there any more.
            many.retain(|id, _| Arc::ptr_eq(&self.store_for(state_of_row(id)), &store));
            all.append(&mut many);
        }
        Ok(all)
    }

    async fn load_across_stores(&self, keys: &[RowKey], now: Timestamp) -> Result<Vec<Option<Row>>, StoreError> {
        let mut rows = vec![None; keys.len()];
        for store in self.all_stores() {
            let mine = |key: &RowKey| Arc::ptr_eq(&self.store_for(state_of_row(&key.id)), &store);
            let places: Vec<usize> = (0..keys.len()).filter(|at| mine(&keys[*at])).collect();
            let wanted: Vec<RowKey> = places.iter().map(|at| keys[*at].clone()).collect();
            if !wanted.is_empty() {
                for (at, row) in places.into_iter().zip(store.load(&wanted, now).await?) {
                    rows[at] = row;
                }
            }
        }
        Ok(rows)
    }

    /// One page of what several stores keep. It ends where the first of their pages does: what lies behind that is not known.
    async fn scan_across_stores(&self, scan: Scan, now: Timestamp) -> Result<Page, StoreError> {
        let order = |key: &RowKey| (key.id.clone(), key.partition.to_string());
        let is_past = |a: &(SmolStr, String), b: &(SmolStr, String)| if scan.descending { a < b } else { a > b };
        let (mut rows, mut end): (Vec<(RowKey, Row)>, Option<RowKey>) = (Vec::new(), None);
        for store in self.all_stores() {
            let page = store.scan(scan.clone(), now).await?;
            // What was left behind when a state moved to another store is not there any more.
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
    "sessions are of whole threads, so no tool has one of its own; say `manager_type = session` for the hub";

/// The state a row is of.
fn state_of_row(id: &str) -> &str {
    id.split_once('/').map_or(id, |(state, _)| state)
}

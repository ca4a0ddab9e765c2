//! A naive reference model of a store, and random programs that compare a real store with it.

use std::{collections::BTreeMap, time::Duration};

use fastrand::Rng;
use smol_str::SmolStr;

use super::{NOW, thread};
use crate::backend::{
    Backend, Batch, Change, Cursor, Durability, Expect, Page, Partition, Row, RowKey, RowVersion, Scan, Scope,
    StoreError, Table, Terms, Write,
};
use toolhub_types::{
    ids::{Tenant, ThreadId},
    timestamp::Timestamp,
};

const STEPS: usize = 60;

/// Rows with their terms by partition, table and id.
#[derive(Default)]
struct Model {
    rows: BTreeMap<(String, Table, SmolStr), (RowKey, Row, Terms)>,
}

/// Runs one random program, deterministic for its seed.
pub(super) async fn compare(store: &impl Backend, seed: u64, tables: [Table; 2]) {
    let (mut random, mut model, mut now) = (Rng::with_seed(seed), Model::default(), NOW);
    let mut known_versions = vec![RowVersion { number: 1, stamp: 0 }];
    for step in 0..STEPS {
        let context = format!("program {seed}, step {step}");
        match random.u8(0..10) {
            0..5 => {
                let batch = batch(&mut random, tables, &known_versions, now);
                let (expected, actual) = (model.commit(&batch, now), store.commit(batch.clone(), now).await);
                assert_eq!(actual, expected, "{context}: {batch:?}");
            }
            5..7 => {
                let keys: Vec<RowKey> = (0..random.usize(1..4)).map(|_| key(&mut random, tables)).collect();
                let expected: Vec<Option<Row>> = keys.iter().map(|key| model.load(key, now)).collect();
                assert_eq!(store.load(&keys, now).await, Ok(expected.clone()), "{context}: {keys:?}");
                known_versions.extend(expected.into_iter().flatten().map(|row| row.version));
            }
            7 => {
                let scan = scan(&mut random, tables);
                let actual = store.scan(scan.clone(), now).await.map(|page| (page.rows, page.next));
                let Page { rows, next } = model.scan(&scan, now);
                assert_eq!(actual, Ok((rows, next)), "{context}: {scan:?}");
            }
            8 => now = now + Duration::from_millis(random.u64(1..2_000)),
            _ => {
                // Which rows a sweep removes is the store's choice; that they are expired, and how many, is not.
                let (limit, expired) = (random.usize(1..4), model.count_expired(now));
                assert_eq!(store.sweep(limit, now).await, Ok(limit.min(expired)), "{context}: sweep {limit}");
                while store.sweep(100, now).await == Ok(100) {}
                model.rows.retain(|_, (_, row, _)| !row.is_expired(now));
            }
        }
    }
}

impl Model {
    fn find(&self, partition: &Partition, table: Table, id: &SmolStr, now: Timestamp) -> Option<&Row> {
        let row = self.rows.get(&(partition.to_string(), table, id.clone()));
        row.map(|(_, row, _)| row).filter(|row| !row.is_expired(now))
    }

    fn load(&self, key: &RowKey, now: Timestamp) -> Option<Row> {
        self.find(&key.partition, key.table, &key.id, now).cloned()
    }

    fn commit(&mut self, batch: &Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        let Batch { partition, writes, .. } = batch;
        batch.check_duplicate_writes()?;
        for Write { table, id, expect, .. } in writes {
            let found = self.find(partition, *table, id, now).map(|row| row.version);
            let holds = match expect {
                Expect::Any => true,
                Expect::Absent => found.is_none(),
                Expect::Same(version) => found == Some(*version),
            };
            if !holds {
                let found = found.map(|version| version.number);
                return Err(StoreError::Conflict { table: *table, id: id.clone(), found });
            }
        }
        let is_other = |(key, row, _): &(RowKey, Row, Terms)| {
            key.partition == *partition && !row.is_expired(now) && !batch.writes_row(key.table, &key.id)
        };
        if batch.no_other_rows && self.rows.values().any(is_other) {
            return Err(StoreError::OtherRows);
        }
        Ok(writes.iter().map(|write| self.write(batch, write, now)).collect())
    }

    fn write(&mut self, batch: &Batch, write: &Write, now: Timestamp) -> u64 {
        let Batch { partition, stamp, .. } = batch;
        let Write { table, id, change, .. } = write;
        let before = self.find(partition, *table, id, now).cloned();
        let version = before.as_ref().map_or(0, |row| row.version.number);
        let index = (partition.to_string(), *table, id.clone());
        let key = RowKey { partition: partition.clone(), table: *table, id: id.clone() };
        match (change, before) {
            (
                change @ (Change::Put { value, schema, expires } | Change::Restore { value, schema, expires, .. }),
                before,
            ) => {
                let restored = if let Change::Restore { version, .. } = change { *version } else { 0 };
                let number = restored.max(version + 1);
                let created = before.map_or(now, |row| row.created);
                let row = Row {
                    version: RowVersion { number, stamp: *stamp },
                    schema: *schema,
                    value: value.clone(),
                    expires: *expires,
                    created,
                    updated: now,
                };
                self.rows.insert(index, (key, row, batch.terms_of(write).clone()));
                number
            }
            (Change::Touch { expires }, Some(row)) => {
                let terms = self.rows.get(&index).map(|(_, _, terms)| terms.clone()).unwrap_or_default();
                self.rows.insert(index, (key, Row { expires: *expires, ..row }, terms));
                version
            }
            (Change::Touch { .. } | Change::Keep, _) => version,
            (Change::Remove, _) => {
                self.rows.remove(&index);
                0
            }
        }
    }

    fn scan(&self, scan: &Scan, now: Timestamp) -> Page {
        let in_scope = |(key, row, terms): &&(RowKey, Row, Terms)| {
            key.table == scan.table
                && key.id.starts_with(&scan.prefix)
                && !row.is_expired(now)
                && scan.terms.iter().all(|wanted| terms.iter().any(|term| term == wanted))
                && match &scan.scope {
                    Scope::All => true,
                    Scope::Tenant(tenant) => key.partition.tenant == *tenant,
                    Scope::Partition(partition) => key.partition == *partition,
                }
        };
        let found = self.rows.values().filter(in_scope);
        let mut rows: Vec<(RowKey, Row)> = found.map(|(key, row, _)| (key.clone(), row.clone())).collect();
        rows.sort_by_cached_key(|(key, _)| (key.id.clone(), key.partition.to_string()));
        if scan.descending {
            rows.reverse();
        }
        if let Some(Cursor(last)) = &scan.after {
            let sort_key = |key: &RowKey| (key.id.clone(), key.partition.to_string());
            let last = sort_key(last);
            rows.retain(|(key, _)| if scan.descending { sort_key(key) < last } else { sort_key(key) > last });
        }
        let mut page = Page::default();
        let mut bytes = 0;
        for (key, row) in rows {
            if page.rows.len() == scan.limit || (bytes >= scan.max_bytes && !page.rows.is_empty()) {
                page.next = page.rows.last().map(|(key, _)| Cursor(key.clone()));
                break;
            }
            bytes += row.value.len();
            page.rows.push((key, row));
        }
        page
    }

    fn count_expired(&self, now: Timestamp) -> usize {
        self.rows.values().filter(|(_, row, _)| row.is_expired(now)).count()
    }
}

fn partition(random: &mut Rng) -> Partition {
    match random.u8(0..4) {
        0 => Partition::for_thread(
            Tenant::new("other").expect("a valid name"),
            ThreadId::new("t").expect("a valid name"),
        ),
        1 => thread("u"),
        _ => thread("t"),
    }
}

fn key(random: &mut Rng, tables: [Table; 2]) -> RowKey {
    let (table, id) = (tables[random.usize(0..2)], SmolStr::new(["a", "ab", "b"][random.usize(0..3)]));
    RowKey { partition: partition(random), table, id }
}

fn batch(random: &mut Rng, tables: [Table; 2], known_versions: &[RowVersion], now: Timestamp) -> Batch {
    let expiry = |random: &mut Rng| random.bool().then(|| now + Duration::from_millis(random.u64(0..3_000)));
    let writes = (0..random.usize(1..4)).map(|_| {
        let RowKey { table, id, .. } = key(random, tables);
        let expect = match random.u8(0..4) {
            0 => Expect::Absent,
            1 => Expect::Same(known_versions[random.usize(0..known_versions.len())]),
            _ => Expect::Any,
        };
        let change = match random.u8(0..7) {
            3 => Change::Restore {
                value: random.u32(..).to_string().into_bytes().into(),
                schema: random.u32(1..3),
                expires: expiry(random),
                version: random.u64(1..9),
            },
            0 => Change::Remove,
            1 => Change::Touch { expires: expiry(random) },
            2 => Change::Keep,
            _ => Change::Put {
                value: random.u32(..).to_string().into_bytes().into(),
                schema: random.u32(1..3),
                expires: expiry(random),
            },
        };
        Write { table, id, expect, change, durability: Durability::KillSafe }
    });
    let writes: Vec<Write> = writes.collect();
    let terms = writes.iter().map(|write| ((write.table, write.id.clone()), random_terms(random)));
    let terms = terms.collect();
    let no_other_rows = random.u8(0..8) == 0;
    Batch { writes, terms, no_other_rows, stamp: random.u64(..), ..Batch::new(partition(random)) }
}

fn random_terms(random: &mut Rng) -> Terms {
    Terms::new(["x", "y", "xy"].into_iter().filter(|_| random.bool()))
}

fn scan(random: &mut Rng, tables: [Table; 2]) -> Scan {
    let scope = match random.u8(0..3) {
        0 => Scope::All,
        1 => Scope::Tenant(Tenant::default()),
        _ => Scope::Partition(partition(random)),
    };
    let table = tables[random.usize(0..2)];
    let last = random.bool().then(|| {
        let partition = if let Scope::Partition(only) = &scope { only.clone() } else { partition(random) };
        let id = ["", "a", "aa", "ab", "b", "c"][random.usize(0..6)].into();
        Cursor(RowKey { partition, table, id })
    });
    let scan = Scan::new(table, scope).prefix(["", "a"][random.usize(0..2)]);
    let terms = if random.bool() { Terms::NONE } else { random_terms(random) };
    let terms = terms.iter().map(SmolStr::new).collect();
    let scan = if random.u8(0..4) == 0 { scan.max_bytes(random.usize(1..30)) } else { scan };
    Scan { terms, descending: random.bool(), after: last, ..scan.limit(random.usize(1..5)) }
}

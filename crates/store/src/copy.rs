//! Copies all records of one store into another, empty one, and compares both.
//!
//! In: two stores that nothing else uses meanwhile. Out: the number of rows by table, or the first difference. Rows keep their version
//! numbers and times; their stamps are new. The leases of nodes are not copied. What index terms a row has is the caller's knowledge.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use smol_str::SmolStr;
use toolhub_storage::backend::{
    Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, Row, RowKey, Scan, Scope, StoreError, Table,
    Terms, Write, read_all,
};
use toolhub_types::{ids::Tenant, timestamp::Timestamp};

/// Number of rows read at a time.
const PAGE_ROWS: usize = 500;
/// Size of the rows read at a time.
const PAGE_BYTES: usize = 4 << 20;
/// Number of concurrent commits, as many as a store may put into one transaction.
const CONCURRENCY: usize = 64;

/// Why a store was not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The target has records already.
    #[error("the target store is not empty: it has rows in the table `{0}`")]
    NotEmpty(Table),
    /// The source cannot be read.
    #[error("reading the source store failed: {0}")]
    Read(#[source] StoreError),
    /// The target cannot be read or written.
    #[error("writing the target store failed: {0}")]
    Write(#[source] StoreError),
    /// A row of the source is missing in the target, or differs there.
    #[error("the {0} row `{1}` is not the same in both stores; was one of them used meanwhile?")]
    Different(Table, String),
}

/// The tables that are copied: all but those in which running nodes hold leases or pass events on.
fn tables() -> impl Iterator<Item = Table> {
    Table::ALL.into_iter().filter(|table| !matches!(table, Table::Permits | Table::Relay))
}

/// The nodes of a store that may be alive.
#[derive(Debug)]
pub struct LivingNodes {
    /// Their ids.
    pub ids: Vec<SmolStr>,
    /// How long each may be silent.
    pub timeout: Duration,
}

/// The nodes that have renewed their row within the longest timeout that one of them announces: servers that use the store, or that were
/// killed just now. `announced` reads it from a row; one without has the default.
///
/// # Errors
/// When the store does not answer.
pub async fn living_nodes(
    store: &dyn Backend,
    announced: impl Fn(&Row) -> Option<Duration>,
    default: Duration,
    now: Timestamp,
) -> Result<LivingNodes, StoreError> {
    let nodes = Scope::Partition(Partition { tenant: Tenant::default(), kind: PartitionKind::Nodes });
    let rows = read_all(store, Scan::new(Table::Nodes, nodes), now).await?;
    // Other rows there, such as leases, have ids that begin so.
    let of_nodes: Vec<_> = rows.into_iter().filter(|(key, _)| !key.id.starts_with('~')).collect();
    let timeout = of_nodes.iter().map(|(_, row)| announced(row).unwrap_or(default)).max().unwrap_or(default);
    let living = of_nodes.into_iter().filter(|(_, row)| row.updated > now - timeout);
    Ok(LivingNodes { ids: living.map(|(key, _)| key.id).collect(), timeout })
}

/// The rows of a table that are copied. The rows of nodes are leases; which layouts the records have is copied with them.
fn scope_of(table: Table) -> Scope {
    match table {
        Table::Nodes => Scope::Partition(Partition { tenant: Tenant::default(), kind: PartitionKind::Layouts }),
        _ => Scope::All,
    }
}

/// Copies all rows that have not expired. `terms` are the index terms of a row.
///
/// # Errors
/// When the target is not empty, or a store fails. The target is then incomplete and must be discarded.
pub async fn copy(
    source: &dyn Backend,
    target: &dyn Backend,
    terms: impl Fn(&RowKey, &Row) -> Terms,
    now: Timestamp,
) -> Result<BTreeMap<Table, u64>, CopyError> {
    for table in tables() {
        let page = target.scan(Scan::new(table, scope_of(table)).limit(1), now).await.map_err(CopyError::Write)?;
        if !page.rows.is_empty() {
            return Err(CopyError::NotEmpty(table));
        }
    }
    let mut counts = BTreeMap::new();
    for table in tables() {
        let (mut scan, mut count) = (page_scan(table), 0);
        loop {
            let page = source.scan(scan.clone(), now).await.map_err(CopyError::Read)?;
            count += page.rows.len() as u64;
            write(target, &page.rows, &terms).await.map_err(CopyError::Write)?;
            match page.next {
                Some(next) => scan.after = Some(next),
                None => break,
            }
        }
        counts.insert(table, count);
    }
    Ok(counts)
}

/// Checks that each row of the source is in the target with the same content, and no other row is.
///
/// # Errors
/// The first row that differs, or why a store cannot be read.
pub async fn compare(source: &dyn Backend, target: &dyn Backend, now: Timestamp) -> Result<(), CopyError> {
    for table in tables() {
        let (mut source_rows, mut target_rows) = (Rows::new(source, table, now), Rows::new(target, table, now));
        loop {
            let (one, other) = (source_rows.next().await, target_rows.next().await);
            let (one, other) = (one.map_err(CopyError::Read)?, other.map_err(CopyError::Write)?);
            match (one, other) {
                (None, None) => break,
                (Some(one), Some(other)) if is_same(&one, &other) => {}
                (one, other) => {
                    let (key, _) = one.or(other).expect("the arm above takes two ends");
                    return Err(CopyError::Different(table, key.id.to_string()));
                }
            }
        }
    }
    Ok(())
}

fn is_same((key, row): &(RowKey, Row), (other_key, other): &(RowKey, Row)) -> bool {
    let content = |row: &Row| (row.schema, row.expires, row.created, row.updated);
    // A store that may have lost versions raises those of all rows.
    key == other_key
        && content(row) == content(other)
        && row.value == other.value
        && other.version.number >= row.version.number
}

/// The rows of a table, read page by page.
struct Rows<'a> {
    store: &'a dyn Backend,
    now: Timestamp,
    page: std::vec::IntoIter<(RowKey, Row)>,
    /// The next page; `None` after the last one.
    scan: Option<Scan>,
}

impl<'a> Rows<'a> {
    fn new(store: &'a dyn Backend, table: Table, now: Timestamp) -> Self {
        Self { store, now, page: Vec::new().into_iter(), scan: Some(page_scan(table)) }
    }

    async fn next(&mut self) -> Result<Option<(RowKey, Row)>, StoreError> {
        loop {
            if let Some(row) = self.page.next() {
                return Ok(Some(row));
            }
            let Some(scan) = self.scan.take() else { return Ok(None) };
            let page = self.store.scan(scan.clone(), self.now).await?;
            self.page = page.rows.into_iter();
            self.scan = page.next.map(|next| Scan { after: Some(next), ..scan });
        }
    }
}

fn page_scan(table: Table) -> Scan {
    Scan::new(table, scope_of(table)).limit(PAGE_ROWS).max_bytes(PAGE_BYTES)
}

/// Writes rows with the times at which they were created and last put. A batch has one time, so rows that were put together are
/// written together.
async fn write(
    target: &dyn Backend,
    rows: &[(RowKey, Row)],
    terms: impl Fn(&RowKey, &Row) -> Terms,
) -> Result<(), StoreError> {
    // A row that was put again is written twice: as it was created, then as it is.
    let (mut first, mut last) = (BTreeMap::new(), BTreeMap::new());
    for (key, row) in rows {
        if row.created != row.updated {
            let version = row.version.number.saturating_sub(1);
            add(&mut first, key, row, row.created, version, Terms::NONE);
        }
        add(&mut last, key, row, row.updated, row.version.number, terms(key, row));
    }
    for batches in [first, last] {
        stream::iter(batches)
            .map(|((_, now), batch)| target.commit(batch, now))
            .buffer_unordered(CONCURRENCY)
            .try_for_each(|_| async { Ok(()) })
            .await?;
    }
    Ok(())
}

fn add(
    batches: &mut BTreeMap<(String, Timestamp), Batch>,
    key: &RowKey,
    row: &Row,
    now: Timestamp,
    version: u64,
    terms: Terms,
) {
    let RowKey { partition, table, id } = key;
    let new_batch = || Batch::new(Partition::clone(partition));
    let batch = batches.entry((partition.to_string(), now)).or_insert_with(new_batch);
    if !terms.is_empty() {
        batch.terms.insert((*table, id.clone()), terms);
    }
    let change = Change::Restore { value: row.value.clone(), schema: row.schema, expires: row.expires, version };
    let (id, durability) = (id.clone(), Durability::PowerSafe);
    batch.writes.push(Write { table: *table, id, expect: Expect::Any, change, durability });
}

//! Finds the blocks of ids in which all terms of a scan occur.
//!
//! In: a scan with terms. Out: block after block, in the order of the scan. The terms, and the ids of a single partition, are
//! sorted lists of blocks; they are joined by seeking in each list for the block that another one has (leapfrog join), so that
//! the cost follows the shortest list. Long lists without a common block are followed up to the read limit of the scan.

use rusqlite::{Connection, OptionalExtension, Result, types::Value};
use smol_str::SmolStr;
use toolhub_storage::backend::{Cursor, Partition, RowKey, Scan, Scope};

use super::{
    super::term_block::{block_of, has_many_ids},
    prefix_successor,
};

/// The blocks of a scan.
pub(super) struct TermIndex<'a> {
    connection: &'a Connection,
    scan: &'a Scan,
    /// The blocks of all ids with the scan's prefix begin with this.
    prefix: &'a str,
    tenants: Vec<String>,
}

/// Where a seek begins, in the order of the scan. In SQLite every blob sorts after every text.
struct From {
    block: Option<String>,
    inclusive: bool,
}

/// What follows a block.
pub(super) enum NextBlock {
    Found(String),
    End,
    /// The read limit is reached; the rest of the scan begins after this row.
    ReadLimit(Cursor),
}

/// The partitions of a tenant, or all.
const TENANT_PARTITIONS: &str = "partition >= ?3 AND partition < ?4";

impl<'a> TermIndex<'a> {
    pub(super) fn new(connection: &'a Connection, scan: &'a Scan) -> Result<Self> {
        let tenants = match &scan.scope {
            Scope::All => all_tenants(connection, scan)?,
            Scope::Tenant(tenant) | Scope::Partition(Partition { tenant, .. }) => vec![tenant.to_string()],
        };
        Ok(Self { connection, scan, prefix: block_of(&scan.prefix), tenants })
    }

    /// The next block after another one; the first one of the page after none. Each lookup counts as a read.
    pub(super) fn next_block(&self, last: Option<String>, reads_left: &mut usize) -> Result<NextBlock> {
        let mut from = match last {
            Some(block) => From { block: Some(block), inclusive: false },
            None => self.page_start(),
        };
        'seek: loop {
            if *reads_left == 0 {
                if let Some(cursor) = self.passed_row(&from)? {
                    return Ok(NextBlock::ReadLimit(cursor));
                }
                // No row is in between, so that a cursor would not advance.
                *reads_left = self.scan.read_limit;
            }
            let mut candidate: Option<String> = None;
            for source in 0..=self.scan.terms.len() {
                *reads_left = reads_left.saturating_sub(1);
                let found = match self.scan.terms.get(source) {
                    Some(term) => self.seek_term(term, &from)?,
                    None => match &self.scan.scope {
                        Scope::Partition(only) => self.seek_partition(only, &from)?,
                        Scope::All | Scope::Tenant(_) => candidate.clone(),
                    },
                };
                let Some(found) = found.filter(|found| found.starts_with(self.prefix)) else {
                    return Ok(NextBlock::End);
                };
                let is_behind = candidate.is_some_and(|candidate| candidate != found);
                from = From { block: Some(found.clone()), inclusive: true };
                if is_behind {
                    continue 'seek;
                }
                candidate = Some(found);
            }
            return Ok(candidate.map_or(NextBlock::End, NextBlock::Found));
        }
    }

    /// The last row that a seek has passed, in the order of the scan; `None` if it has passed none since the cursor.
    fn passed_row(&self, from: &From) -> Result<Option<Cursor>> {
        let Some(block) = from.block.as_deref().filter(|_| from.inclusive) else { return Ok(None) };
        let (comparison, bound, order) = match self.scan.descending {
            false => ("<", Some(block.to_owned()), "DESC"),
            true if has_many_ids(block) => (">=", prefix_successor(block), "ASC"),
            true => (">", Some(block.to_owned()), "ASC"),
        };
        let Some(bound) = bound else { return Ok(None) };
        let (index, partitions, first, end) = match &self.scan.scope {
            Scope::Partition(only) => ("by_name", "partition = ?3 AND ?4 = ''", only.to_string(), String::new()),
            Scope::Tenant(only) => ("by_id", TENANT_PARTITIONS, format!("{only}/"), format!("{only}0")),
            Scope::All => ("by_id", TENANT_PARTITIONS, String::new(), char::MAX.to_string()),
        };
        let mut find = self.connection.prepare_cached(&format!(
            "SELECT id, partition FROM rows INDEXED BY {index}
             WHERE tab = ?1 AND id {comparison} ?2 AND {partitions} ORDER BY id {order}, partition {order} LIMIT 1"
        ))?;
        let bounds = (self.scan.table.as_str(), bound, first, end);
        let found =
            find.query_row(bounds, |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).optional()?;
        let Some((id, partition)) = found else { return Ok(None) };
        let advances = self.scan.after.as_ref().is_none_or(|Cursor(after)| {
            let (passed, after) = ((&*id, &*partition), (after.id.as_str(), &*after.partition.to_string()));
            if self.scan.descending { passed < after } else { passed > after }
        });
        let key = |partition| RowKey { partition, table: self.scan.table, id: id.as_str().into() };
        Ok(partition.parse().ok().filter(|_| advances).map(|partition| Cursor(key(partition))))
    }

    /// The first block that may have a row of the page.
    fn page_start(&self) -> From {
        let cursor = self.scan.after.as_ref().map(|Cursor(last)| block_of(&last.id).to_owned());
        if !self.scan.descending {
            let first = self.prefix.to_owned();
            return From { block: Some(cursor.map_or(first.clone(), |cursor| cursor.max(first))), inclusive: true };
        }
        let end = prefix_successor(self.prefix);
        match (cursor, end) {
            (Some(cursor), Some(end)) if cursor >= end => From { block: Some(end), inclusive: false },
            (Some(cursor), _) => From { block: Some(cursor), inclusive: true },
            (None, end) => From { block: end, inclusive: false },
        }
    }

    /// The nearest block of a term.
    fn seek_term(&self, term: &SmolStr, from: &From) -> Result<Option<String>> {
        let (comparison, order) = self.direction(from.inclusive);
        let mut seek = self.connection.prepare_cached(&format!(
            "SELECT block FROM term_blocks WHERE tab = ?1 AND tenant = ?2 AND term = ?3 AND block {comparison} ?4
             ORDER BY block {order} LIMIT 1"
        ))?;
        let (table, bound) = (self.scan.table.as_str(), text_or_blob(from.block.as_deref()));
        let mut nearest: Option<String> = None;
        for tenant in &self.tenants {
            let found = seek.query_row((table, tenant, term.as_str(), &bound), |row| row.get(0)).optional()?;
            nearest = match (nearest, found) {
                (Some(one), Some(other)) if self.scan.descending => Some(one.max(other)),
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        Ok(nearest)
    }

    /// The nearest block with an id of a partition.
    fn seek_partition(&self, only: &Partition, from: &From) -> Result<Option<String>> {
        let (mut comparison, order) = self.direction(from.inclusive);
        let mut bound = from.block.clone();
        // The name of a block is the smallest of its ids.
        if let Some(block) = from.block.as_deref().filter(|block| has_many_ids(block))
            && self.scan.descending == from.inclusive
        {
            let end = prefix_successor(block);
            if end.is_none() && !self.scan.descending {
                return Ok(None);
            }
            (comparison, bound) = (if self.scan.descending { "<" } else { ">=" }, end);
        }
        let mut seek = self.connection.prepare_cached(&format!(
            "SELECT id FROM rows INDEXED BY by_name WHERE partition = ?1 AND tab = ?2 AND id {comparison} ?3
             ORDER BY id {order} LIMIT 1"
        ))?;
        let bounds = (only.to_string(), self.scan.table.as_str(), text_or_blob(bound.as_deref()));
        let found = seek.query_row(bounds, |row| row.get::<_, String>(0)).optional()?;
        Ok(found.map(|id| block_of(&id).to_owned()))
    }

    fn direction(&self, inclusive: bool) -> (&'static str, &'static str) {
        match (self.scan.descending, inclusive) {
            (true, true) => ("<=", "DESC"),
            (true, false) => ("<", "DESC"),
            (false, true) => (">=", "ASC"),
            (false, false) => (">", "ASC"),
        }
    }
}

/// The tenants that have terms in the table, one seek each.
fn all_tenants(connection: &Connection, scan: &Scan) -> Result<Vec<String>> {
    let mut next = connection.prepare_cached("SELECT min(tenant) FROM term_blocks WHERE tab = ?1 AND tenant > ?2")?;
    let mut tenants: Vec<String> = Vec::new();
    loop {
        let last = tenants.last().map_or("", String::as_str);
        match next.query_row((scan.table.as_str(), last), |row| row.get::<_, Option<String>>(0))? {
            Some(tenant) => tenants.push(tenant),
            None => return Ok(tenants),
        }
    }
}

/// A bound after all texts if there is none.
fn text_or_blob(bound: Option<&str>) -> Value {
    bound.map_or(Value::Blob(Vec::new()), |text| Value::Text(text.into()))
}

//! Finds the blocks of ids in which all terms of a scan occur.
//!
//! In: a scan with terms. Out: block after block, in the order of the scan. The terms, and the ids of a single partition, are
//! sorted lists of blocks; they are joined by seeking in each list for the block that another one has (leapfrog join), so that
//! the cost follows the shortest list.

use rusqlite::{Connection, OptionalExtension, Result, types::Value};
use smol_str::SmolStr;
use toolhub_storage::backend::{Cursor, Partition, Scan, Scope};

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

impl<'a> TermIndex<'a> {
    pub(super) fn new(connection: &'a Connection, scan: &'a Scan) -> Result<Self> {
        let tenants = match &scan.scope {
            Scope::All => all_tenants(connection, scan)?,
            Scope::Tenant(tenant) | Scope::Partition(Partition { tenant, .. }) => vec![tenant.to_string()],
        };
        Ok(Self { connection, scan, prefix: block_of(&scan.prefix), tenants })
    }

    /// The next block after another one; the first one of the page after none.
    pub(super) fn next_block(&self, last: Option<String>) -> Result<Option<String>> {
        let mut from = match last {
            Some(block) => From { block: Some(block), inclusive: false },
            None => self.page_start(),
        };
        'seek: loop {
            let mut candidate: Option<String> = None;
            for source in 0..=self.scan.terms.len() {
                let found = match self.scan.terms.get(source) {
                    Some(term) => self.seek_term(term, &from)?,
                    None => match &self.scan.scope {
                        Scope::Partition(only) => self.seek_partition(only, &from)?,
                        Scope::All | Scope::Tenant(_) => candidate.clone(),
                    },
                };
                let Some(found) = found.filter(|found| found.starts_with(self.prefix)) else { return Ok(None) };
                let is_behind = candidate.is_some_and(|candidate| candidate != found);
                from = From { block: Some(found.clone()), inclusive: true };
                if is_behind {
                    continue 'seek;
                }
                candidate = Some(found);
            }
            return Ok(candidate);
        }
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

//! Reads many rows, a page at a time.
//!
//! In: a scan. Out: a page in the order of ids and partitions. A page of one partition is of one moment; one over several
//! partitions may lag a little behind commits. A context that cannot be read is passed over; that it was set aside has
//! been said.

use std::{cmp::Ordering, collections::BTreeMap, ops::Bound, sync::Arc};

use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Cursor, Page, Row, RowKey, Scan, Scope, StoreError, Table},
    clock::Timestamp,
};

use super::{
    context::{self, Context, Part},
    doc::{Doc, table_index},
    document_store::{Content, DocumentStore, View},
    index::{Index, StateKey},
};

/// How many states are looked up before their files are read.
const LOOKUP_BATCH_SIZE: usize = 256;

type Rows = Vec<(RowKey, Row)>;

/// The page, if it can be made without reading a file.
pub(super) fn page_from_memory(shelf: &DocumentStore, scan: &Scan, now: Timestamp) -> Option<Result<Page, StoreError>> {
    if table_index(scan.table).is_none() {
        return Some(Ok(Page::default()));
    }
    let Scope::Partition(only) = &scan.scope else { return None };
    let Some(home) = context::partition_key(only) else { return Some(Ok(Page::default())) };
    Some(shelf.view(false, |view| scan_partition(view, &home, scan, now))?.map(|rows| into_page(rows, scan)))
}

/// The page; this may block.
pub(super) fn page(shelf: &DocumentStore, scan: &Scan, now: Timestamp) -> Result<Page, StoreError> {
    let rows = match &scan.scope {
        _ if table_index(scan.table).is_none() => Vec::new(),
        Scope::Partition(only) => match context::partition_key(only) {
            Some(home) => shelf.view(true, |view| scan_partition(view, &home, scan, now)).unwrap_or(Ok(Vec::new()))?,
            None => Vec::new(),
        },
        Scope::Tenant(_) | Scope::All if scan.table == Table::State => scan_states(shelf, scan, now)?,
        Scope::Tenant(_) | Scope::All => scan_spans(shelf, scan, now)?,
    };
    Ok(into_page(rows, scan))
}

/// Cuts the rows to a page. There is one more of them if there is another page.
fn into_page(mut rows: Rows, scan: &Scan) -> Page {
    let more = rows.len() > scan.limit;
    rows.truncate(scan.limit);
    let next = rows.last().filter(|_| more).map(|(key, _)| Cursor(key.clone()));
    Page { rows, next }
}

/// Which rows a scan asks for.
struct ScanWindow<'a> {
    scan: &'a Scan,
    /// The last row that was seen.
    after: Option<StateKey>,
    /// How the texts of the partitions begin.
    partition_prefix: String,
}

impl<'a> ScanWindow<'a> {
    fn of(scan: &'a Scan) -> Self {
        let after = scan.after.as_ref().map(|Cursor(last)| (last.id.clone(), last.partition.to_string().into()));
        let homes = if let Scope::Tenant(tenant) = &scan.scope { format!("{tenant}/") } else { String::new() };
        Self { scan, after, partition_prefix: homes }
    }

    /// How two places follow each other in the order of the scan.
    fn order(&self, one: &StateKey, other: &StateKey) -> Ordering {
        if self.scan.descending { other.cmp(one) } else { one.cmp(other) }
    }

    /// Whether a row is behind the cursor.
    fn is_after_cursor(&self, row: &StateKey) -> bool {
        self.after.as_ref().is_none_or(|after| self.order(row, after).is_gt())
    }

    /// The next states, at most so many.
    fn next_states(&self, index: &Index, most: usize) -> Vec<StateKey> {
        // No partition has an empty text.
        let edge = |id: SmolStr| (id, Arc::from(""));
        let mut from = Bound::Included(edge(self.scan.prefix.as_str().into()));
        let mut to = prefix_successor(&self.scan.prefix).map_or(Bound::Unbounded, |end| Bound::Excluded(edge(end)));
        if let Some(after) = self.after.clone() {
            match (&from, &to) {
                (Bound::Included(first), _) if !self.scan.descending && after >= *first => {
                    from = Bound::Excluded(after);
                }
                (_, Bound::Excluded(end)) if self.scan.descending && after > *end => {}
                _ if self.scan.descending => to = Bound::Excluded(after),
                _ => {}
            }
        }
        let found = index.states(from, to).filter(|(_, home)| home.starts_with(&self.partition_prefix)).cloned();
        if self.scan.descending { found.rev().take(most).collect() } else { found.take(most).collect() }
    }

    /// The contexts that may have rows behind the cursor, each with the nearest place it may have one at; in order.
    fn candidate_contexts(&self, index: &Index) -> Vec<(StateKey, Context)> {
        let spans = index.contexts_with_spans(self.scan.table).filter(|(context, ..)| self.may_hold(context));
        let mut found: Vec<(StateKey, Context)> = spans
            .filter_map(|(context, first, last)| {
                let (nearest, farthest) = if self.scan.descending { (last, first) } else { (first, last) };
                let at = |id: &SmolStr| (id.clone(), context.partition_key.clone());
                self.is_after_cursor(&at(farthest)).then(|| (at(nearest), context.clone()))
            })
            .collect();
        found.sort_unstable_by(|(one, _), (other, _)| self.order(one, other));
        found
    }

    /// Whether rows of a context may be asked for, as far as its beginning tells.
    fn may_hold(&self, context: &Context) -> bool {
        let Part::Rows(beginning) = &context.part else { return false };
        let prefix = self.scan.prefix.as_str();
        context.partition_key.starts_with(&self.partition_prefix)
            && (beginning.starts_with(prefix) || prefix.starts_with(beginning.as_str()))
    }

    /// The rows of a document that are asked for, in the order of the scan.
    fn rows(&self, doc: &Doc, now: Timestamp, most: usize) -> Rows {
        let (home, scan) = (&doc.context.partition_key, self.scan);
        let Some(partition) = context::parse_partition(home) else { return Vec::new() };
        let rows = doc.rows(scan.table);
        let wanted = |id: &SmolStr, row: &Row| {
            id.starts_with(&scan.prefix) && !row.is_expired(now) && self.is_after_cursor(&(id.clone(), home.clone()))
        };
        let read = |(id, kept): (&SmolStr, &Arc<super::doc::StoredRow>)| {
            wanted(id, &kept.row)
                .then(|| (RowKey { partition: partition.clone(), table: scan.table, id: id.clone() }, kept.row.clone()))
        };
        if scan.descending {
            rows.iter().rev().filter_map(read).take(most).collect()
        } else {
            rows.iter().filter_map(read).take(most).collect()
        }
    }
}

/// The rows of one partition. Its contexts are in the order of their ids, so the first that fill the page are enough.
fn scan_partition(view: &mut View<'_>, home: &Arc<str>, scan: &Scan, now: Timestamp) -> Rows {
    let (window, most) = (ScanWindow::of(scan), scan.limit.saturating_add(1));
    let wanted = view
        .index
        .contexts_in(home)
        .filter(|(context, entry)| window.may_hold(context) && entry.head.span(scan.table).is_some());
    let contexts = wanted.map(|(context, _)| context.clone());
    let contexts: Vec<Context> = if scan.descending { contexts.rev().collect() } else { contexts.collect() };
    let mut rows = Vec::new();
    for context in contexts {
        if rows.len() + view.unread() >= most {
            break;
        }
        if let Content::Doc(doc) = view.get(&context) {
            rows.extend(window.rows(&doc, now, most - rows.len()));
        }
    }
    rows
}

/// States of many partitions, found in the index; then their files are read.
fn scan_states(shelf: &DocumentStore, scan: &Scan, now: Timestamp) -> Result<Rows, StoreError> {
    let (mut window, most) = (ScanWindow::of(scan), scan.limit.saturating_add(1));
    let mut rows = Vec::new();
    loop {
        let found = window.next_states(&shelf.lock_index(), (most - rows.len()).min(LOOKUP_BATCH_SIZE));
        let Some(last) = found.last().cloned() else { return Ok(rows) };
        for (id, home) in found {
            let Content::Doc(doc) = shelf.get(&Context::of_row(&home, &id))? else { continue };
            let live = doc.get(Table::State, &id).filter(|row| !row.is_expired(now));
            if let (Some(row), Some(partition)) = (live, context::parse_partition(&home)) {
                rows.push((RowKey { partition, table: Table::State, id }, row.clone()));
            }
        }
        if rows.len() >= most {
            return Ok(rows);
        }
        window.after = Some(last);
    }
}

/// Other rows of many partitions. Of each context the first and the last id are known, and only files that may have rows
/// on this page are read.
fn scan_spans(shelf: &DocumentStore, scan: &Scan, now: Timestamp) -> Result<Rows, StoreError> {
    let (window, most) = (ScanWindow::of(scan), scan.limit.saturating_add(1));
    let mut rows: BTreeMap<StateKey, (RowKey, Row)> = BTreeMap::new();
    let contexts = window.candidate_contexts(&shelf.lock_index());
    for (nearest, context) in contexts {
        let full = rows.len() >= most;
        let farthest = if scan.descending { rows.keys().next() } else { rows.keys().next_back() };
        if farthest.is_some_and(|farthest| full && window.order(&nearest, farthest).is_gt()) {
            break;
        }
        let Content::Doc(doc) = shelf.get(&context)? else { continue };
        for (key, row) in window.rows(&doc, now, most) {
            rows.insert((key.id.clone(), context.partition_key.clone()), (key, row));
            if rows.len() > most {
                if scan.descending {
                    rows.pop_first()
                } else {
                    rows.pop_last()
                };
            }
        }
    }
    Ok(if scan.descending { rows.into_values().rev().collect() } else { rows.into_values().collect() })
}

/// The first text behind all that begin with this one; `None` where there is no such text.
fn prefix_successor(prefix: &str) -> Option<SmolStr> {
    let (at, last) = prefix.char_indices().rfind(|(_, last)| *last != char::MAX)?;
    let next = (last..=char::MAX).nth(1)?;
    Some(smol_str::format_smolstr!("{}{next}", &prefix[..at]))
}

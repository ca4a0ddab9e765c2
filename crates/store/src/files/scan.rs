//! Paged scans of the file store.
//!
//! In: a scan. Out: a page ordered by id and partition. A page of one partition comes from one snapshot; one over several
//! partitions may lag slightly behind commits. Unreadable contexts are skipped; their quarantine has been logged.

use std::{cmp::Ordering, collections::BTreeMap, ops::Bound, sync::Arc};

use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Cursor, Page, Row, RowKey, Scan, Scope, StoreError, Table, Terms},
    clock::Timestamp,
};

use super::{
    context::{self, Context},
    doc::{Doc, StoredRow, table_index},
    document_store::{Content, DocumentStore, View},
    index::{Index, StateKey},
};

/// How many states are looked up in the index before their files are read.
const LOOKUP_BATCH_SIZE: usize = 256;

type Rows = Vec<(RowKey, Row)>;

/// The page, if no file must be read for it.
pub(super) fn page_from_memory(
    documents: &DocumentStore,
    scan: &Scan,
    now: Timestamp,
) -> Option<Result<Page, StoreError>> {
    if table_index(scan.table).is_none() {
        return Some(Ok(Page::default()));
    }
    let Scope::Partition(only) = &scan.scope else { return None };
    let Some(partition_key) = context::partition_key(only) else { return Some(Ok(Page::default())) };
    Some(
        documents
            .view(false, |view| scan_partition(view, &partition_key, scan, now))?
            .map(|rows| Page::cut(rows, scan)),
    )
}

/// The page; may block.
pub(super) fn page(documents: &DocumentStore, scan: &Scan, now: Timestamp) -> Result<Page, StoreError> {
    let rows = match &scan.scope {
        _ if table_index(scan.table).is_none() => Vec::new(),
        Scope::Partition(only) => match context::partition_key(only) {
            Some(partition_key) => documents
                .view(true, |view| scan_partition(view, &partition_key, scan, now))
                .unwrap_or(Ok(Vec::new()))?,
            None => Vec::new(),
        },
        Scope::Tenant(_) | Scope::All if scan.table == Table::State => scan_states(documents, scan, now)?,
        Scope::Tenant(_) | Scope::All => scan_spans(documents, scan, now)?,
    };
    Ok(Page::cut(rows, scan))
}

/// The key range of a scan.
struct ScanWindow<'a> {
    scan: &'a Scan,
    /// The last row of the previous page or lookup.
    after: Option<StateKey>,
    /// Common prefix of the partition keys.
    partition_prefix: String,
}

impl<'a> ScanWindow<'a> {
    fn of(scan: &'a Scan) -> Self {
        let after = scan.after.as_ref().map(|Cursor(last)| (last.id.clone(), last.partition.to_string().into()));
        let partition_prefix =
            if let Scope::Tenant(tenant) = &scan.scope { format!("{tenant}/") } else { String::new() };
        Self { scan, after, partition_prefix }
    }

    /// Compares two keys in the order of the scan.
    fn order(&self, one: &StateKey, other: &StateKey) -> Ordering {
        if self.scan.descending { other.cmp(one) } else { one.cmp(other) }
    }

    /// Whether a row comes after the cursor.
    fn is_after_cursor(&self, row: &StateKey) -> bool {
        self.after.as_ref().is_none_or(|after| self.order(row, after).is_gt())
    }

    /// The next states, at most `limit`.
    fn next_states(&self, index: &Index, limit: usize) -> Vec<StateKey> {
        // No partition key is empty, so the empty text sorts before all of them.
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
        let found = index
            .states(from, to)
            .filter(|(_, partition_key)| partition_key.starts_with(&self.partition_prefix))
            .cloned();
        if self.scan.descending { found.rev().take(limit).collect() } else { found.take(limit).collect() }
    }

    /// The contexts that may have rows after the cursor, each with the nearest possible key, in order.
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

    /// Whether a context may have rows in the range, judging by its id prefix.
    fn may_hold(&self, context: &Context) -> bool {
        let (id_prefix, prefix) = (&context.id_prefix, self.scan.prefix.as_str());
        context.partition_key.starts_with(&self.partition_prefix)
            && (id_prefix.starts_with(prefix) || prefix.starts_with(id_prefix.as_str()))
    }

    /// Whether a row in the range is found: it has not expired and has the terms.
    fn matches(&self, stored: &StoredRow, now: Timestamp) -> bool {
        !stored.row.is_expired(now) && Terms::text_has_all(stored.terms.as_str(), &self.scan.terms)
    }

    /// The rows of a document in the range, in the order of the scan.
    fn rows(&self, doc: &Doc, now: Timestamp, limit: usize) -> Rows {
        let (partition_key, scan) = (&doc.context.partition_key, self.scan);
        let Some(partition) = context::parse_partition(partition_key) else { return Vec::new() };
        let rows = doc.rows(scan.table);
        let in_range = |id: &SmolStr, stored: &StoredRow| {
            id.starts_with(&scan.prefix)
                && self.matches(stored, now)
                && self.is_after_cursor(&(id.clone(), partition_key.clone()))
        };
        let read = |(id, stored): (&SmolStr, &Arc<StoredRow>)| {
            in_range(id, stored).then(|| {
                (RowKey { partition: partition.clone(), table: scan.table, id: id.clone() }, stored.row.clone())
            })
        };
        if scan.descending {
            rows.iter().rev().filter_map(read).take(limit).collect()
        } else {
            rows.iter().filter_map(read).take(limit).collect()
        }
    }
}

/// The rows of one partition. Its contexts are ordered by id, so the first ones that fill the page suffice.
fn scan_partition(view: &mut View<'_>, partition_key: &Arc<str>, scan: &Scan, now: Timestamp) -> Rows {
    let (window, limit) = (ScanWindow::of(scan), scan.limit.saturating_add(1));
    let matching = view
        .index
        .contexts_in(partition_key)
        .filter(|(context, entry)| window.may_hold(context) && entry.head.span(scan.table).is_some());
    let contexts = matching.map(|(context, _)| context.clone());
    let contexts: Vec<Context> = if scan.descending { contexts.rev().collect() } else { contexts.collect() };
    let mut rows = Vec::new();
    for context in contexts {
        if rows.len() + view.unread() >= limit {
            break;
        }
        if let Content::Doc(doc) = view.get(&context) {
            rows.extend(window.rows(&doc, now, limit - rows.len()));
        }
    }
    rows
}

/// States of many partitions: found in the index, then read from their files.
fn scan_states(documents: &DocumentStore, scan: &Scan, now: Timestamp) -> Result<Rows, StoreError> {
    let (mut window, limit) = (ScanWindow::of(scan), scan.limit.saturating_add(1));
    let mut rows = Vec::new();
    loop {
        let found = window.next_states(&documents.lock_index(), (limit - rows.len()).min(LOOKUP_BATCH_SIZE));
        let Some(last) = found.last().cloned() else { return Ok(rows) };
        for (id, partition_key) in found {
            let Content::Doc(doc) = documents.get(&Context::of_row(&partition_key, &id))? else { continue };
            let found = doc.rows(Table::State).get(&id).filter(|stored| window.matches(stored, now));
            if let (Some(stored), Some(partition)) = (found, context::parse_partition(&partition_key)) {
                rows.push((RowKey { partition, table: Table::State, id }, stored.row.clone()));
            }
        }
        if rows.len() >= limit {
            return Ok(rows);
        }
        window.after = Some(last);
    }
}

/// Other rows of many partitions. The index knows the first and last id of each context, so only files that may have rows on
/// this page are read.
fn scan_spans(documents: &DocumentStore, scan: &Scan, now: Timestamp) -> Result<Rows, StoreError> {
    let (window, limit) = (ScanWindow::of(scan), scan.limit.saturating_add(1));
    let mut rows: BTreeMap<StateKey, (RowKey, Row)> = BTreeMap::new();
    let contexts = window.candidate_contexts(&documents.lock_index());
    for (nearest, context) in contexts {
        let full = rows.len() >= limit;
        let farthest = if scan.descending { rows.keys().next() } else { rows.keys().next_back() };
        if farthest.is_some_and(|farthest| full && window.order(&nearest, farthest).is_gt()) {
            break;
        }
        let Content::Doc(doc) = documents.get(&context)? else { continue };
        for (key, row) in window.rows(&doc, now, limit) {
            rows.insert((key.id.clone(), context.partition_key.clone()), (key, row));
            if rows.len() > limit {
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

/// The first text after all texts with this prefix; `None` if there is none.
fn prefix_successor(prefix: &str) -> Option<SmolStr> {
    let (at, last) = prefix.char_indices().rfind(|(_, last)| *last != char::MAX)?;
    let next = (last..=char::MAX).nth(1)?;
    Some(smol_str::format_smolstr!("{}{next}", &prefix[..at]))
}

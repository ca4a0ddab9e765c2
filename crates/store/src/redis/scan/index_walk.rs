//! Walks rows of several partitions in order, by the sorted sets of their ids or of one of their terms.
//!
//! Each bucket has one such set for each tenant. The walk reads a piece of each, merges them, and loads the rows.

use std::collections::VecDeque;

use redis::Cmd;
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Partition, RowKey, Scan, Scope, StoreError},
    clock::Timestamp,
};

use super::{
    super::{Redis, answer, expiries::log_skipped, keys::Bucket, requests::Request},
    WalkedRow,
    bounds::{LexRange, SEPARATOR},
};

/// The smallest and largest number of members that are read from a set at a time.
const PIECE: std::ops::RangeInclusive<usize> = 16..=256;

pub(super) struct IndexWalk<'a> {
    store: &'a Redis,
    scan: &'a Scan,
    sources: Vec<Source>,
}

/// One sorted set.
struct Source {
    key: String,
    tenant: String,
    /// What its members begin with: a term, or nothing.
    head: Vec<u8>,
    range: LexRange,
    /// Members that were read.
    entries: VecDeque<Entry>,
    is_complete: bool,
}

struct Entry {
    id: SmolStr,
    /// The full text of the partition.
    text: String,
    partition: Partition,
}

impl Entry {
    /// What the order of a scan goes by.
    fn name(&self) -> (&str, &str) {
        (&self.id, &self.text)
    }
}

impl<'a> IndexWalk<'a> {
    pub(super) async fn open(store: &'a Redis, scan: &'a Scan) -> Result<Self, StoreError> {
        let mut walk = Self { store, scan, sources: Vec::new() };
        let sets = store.tenants(&scan.scope).await?;
        let term = walk.rarest_term(&sets).await?;
        for (bucket, tenant) in sets {
            let (key, head) = match &term {
                Some(term) => (store.keys.terms(bucket, scan.table, &tenant), format!("{term}\n").into_bytes()),
                None => (store.keys.ids(bucket, scan.table, &tenant), Vec::new()),
            };
            let range = LexRange::of_tenant(&head, scan, &tenant);
            walk.sources.push(Source { key, tenant, head, range, entries: VecDeque::new(), is_complete: false });
        }
        Ok(walk)
    }

    /// The term of the scan that the fewest rows have.
    async fn rarest_term(&self, sets: &[(Bucket, String)]) -> Result<Option<SmolStr>, StoreError> {
        let terms = &self.scan.terms;
        if terms.len() < 2 {
            return Ok(terms.first().cloned());
        }
        let mut requests = Vec::new();
        for term in terms {
            for (bucket, tenant) in sets {
                let [lower, upper] = LexRange::of_tenant(format!("{term}\n").as_bytes(), self.scan, tenant).bounds();
                let mut command = Cmd::new();
                command
                    .arg("ZLEXCOUNT")
                    .arg(self.store.keys.terms(*bucket, self.scan.table, tenant))
                    .arg(lower)
                    .arg(upper);
                requests.push(Request::Command(command));
            }
        }
        let counts = self.store.requests.read(&requests).await?;
        let counts = counts.iter().map(answer::as_integer).collect::<Result<Vec<i64>, StoreError>>()?;
        let sums = counts.chunks(sets.len().max(1)).map(|counts| counts.iter().sum::<i64>());
        Ok(terms.iter().zip(sums.chain(std::iter::repeat(0))).min_by_key(|(_, sum)| *sum).map(|(term, _)| term.clone()))
    }

    pub(super) async fn next(&mut self, count: usize, now: Timestamp) -> Result<Vec<WalkedRow>, StoreError> {
        let mut keys = Vec::with_capacity(count);
        while keys.len() < count {
            self.fill(count).await?;
            // All sources have an entry or are complete, so the first of all comes next, until one runs out.
            while keys.len() < count {
                let Some(Entry { id, partition, .. }) = self.pop_first() else { break };
                keys.push(RowKey { partition, table: self.scan.table, id });
                if self.sources.iter().any(Source::needs_entries) {
                    break;
                }
            }
            if self.sources.iter().all(Source::is_empty) {
                break;
            }
        }
        let rows = self.store.load_in_steps(&keys, now).await?;
        Ok(keys.into_iter().zip(rows).collect())
    }

    fn pop_first(&mut self) -> Option<Entry> {
        let descending = self.scan.descending;
        let open = self.sources.iter_mut().filter(|source| !source.entries.is_empty());
        let first = open.reduce(|one, other| {
            let is_before = one.entries.front().map(Entry::name) < other.entries.front().map(Entry::name);
            if is_before == descending { other } else { one }
        });
        first?.entries.pop_front()
    }

    /// Reads more of each set whose entries were all used.
    async fn fill(&mut self, count: usize) -> Result<(), StoreError> {
        let piece = (2 * count / self.sources.len().max(1)).clamp(*PIECE.start(), *PIECE.end());
        let descending = self.scan.descending;
        loop {
            let mut empty: Vec<&mut Source> = self.sources.iter_mut().filter(|source| source.needs_entries()).collect();
            if empty.is_empty() {
                return Ok(());
            }
            let requests: Vec<Request> = empty.iter().map(|source| source.read_command(piece, descending)).collect();
            let answers = self.store.requests.read(&requests).await?;
            for (source, members) in empty.iter_mut().zip(answers) {
                source.add(answer::into_array(members)?, piece)?;
            }
        }
    }
}

impl Source {
    fn needs_entries(&self) -> bool {
        self.entries.is_empty() && !self.is_complete
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.is_complete
    }

    fn read_command(&self, piece: usize, descending: bool) -> Request {
        let mut command = Cmd::new();
        let [first, last] = self.range.ordered_bounds();
        command.arg("ZRANGE").arg(&self.key).arg(first).arg(last).arg("BYLEX");
        if descending {
            command.arg("REV");
        }
        command.arg("LIMIT").arg(0).arg(piece);
        Request::Command(command)
    }

    fn add(&mut self, members: Vec<redis::Value>, piece: usize) -> Result<(), StoreError> {
        self.is_complete = members.len() < piece;
        for member in members {
            let member = answer::into_bytes(member)?;
            match self.parse(&member) {
                Some(entry) => self.entries.push_back(entry),
                None => log_skipped(&member),
            }
            self.range.continue_after(member);
        }
        Ok(())
    }

    /// Reads `head id NUL partition`.
    fn parse(&self, member: &[u8]) -> Option<Entry> {
        let entry = member.strip_prefix(self.head.as_slice())?;
        let at = entry.iter().position(|byte| *byte == SEPARATOR)?;
        let (id, rest) = (str::from_utf8(&entry[..at]).ok()?, str::from_utf8(&entry[at + 1..]).ok()?);
        let text = format!("{}{rest}", self.tenant);
        Some(Entry { id: id.into(), partition: text.parse().ok()?, text })
    }
}

impl Redis {
    /// The tenants in this scope, with each bucket in which they have or had rows.
    pub(super) async fn tenants(&self, scope: &Scope) -> Result<Vec<(Bucket, String)>, StoreError> {
        if let Scope::Tenant(only) = scope {
            return Ok(self.keys.buckets().map(|bucket| (bucket, only.to_string())).collect());
        }
        let read = |bucket| {
            let mut command = Cmd::new();
            command.arg("SMEMBERS").arg(self.keys.tenants(bucket));
            Request::Command(command)
        };
        let requests: Vec<Request> = self.keys.buckets().map(read).collect();
        let mut tenants = Vec::new();
        for (bucket, names) in self.keys.buckets().zip(self.requests.read(&requests).await?) {
            for name in answer::into_array(names)? {
                match String::from_utf8(answer::into_bytes(name)?) {
                    Ok(name) => tenants.push((bucket, name)),
                    Err(error) => log_skipped(error.as_bytes()),
                }
            }
        }
        Ok(tenants)
    }
}

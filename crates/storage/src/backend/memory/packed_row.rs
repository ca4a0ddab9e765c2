//! Compact representation of a row in memory: one byte string for everything but its value.
//!
//! In: a row and its id. Out: the same, decoded. Numbers are varints and timestamps are stored as deltas, so that a million
//! small rows cost little more than their values. The value is the `Arc` that was passed in, never a copy; loaded rows share it.

use std::{cmp::Ordering, sync::Arc};

use smol_str::SmolStr;

use crate::backend::{Row, RowVersion, Table};
use toolhub_types::timestamp::Timestamp;

/// Marks the table number of a row that has index terms. There are far fewer tables.
const HAS_TERMS: u8 = 0x80;
/// Approximate memory of a row besides its id and value: the row itself, its partition key and metadata, index and allocator.
const OVERHEAD_BYTES: usize = 256;

/// A row with its metadata packed into one allocation.
pub(super) struct PackedRow {
    /// The length-prefixed partition key (empty if `PartitionRows` stores it), the length-prefixed sort key (table number
    /// and id), the length-prefixed index terms, then version, schema, creation, last update and expiry. The terms are
    /// absent unless the table number has the flag [`HAS_TERMS`]; the expiry is absent if the row never expires.
    header: Box<[u8]>,
    value: Arc<[u8]>,
    stamp: u64,
}

/// The metadata of a row: everything but its value.
#[derive(Clone, Copy)]
pub(super) struct RowMeta {
    pub(super) version: RowVersion,
    pub(super) schema: u32,
    pub(super) expires: Option<Timestamp>,
    pub(super) created: Timestamp,
    pub(super) updated: Timestamp,
}

/// The id of a row inside its partition.
#[derive(Clone, Copy)]
pub(super) struct RowId<'a> {
    pub(super) table: Table,
    pub(super) id: &'a str,
}

impl PackedRow {
    pub(super) fn new(partition_key: &[u8], row_id: RowId<'_>, terms: &str, row: Row) -> Self {
        let mut header = Vec::with_capacity(header_len(partition_key, row_id, terms, &row));
        push_varint(&mut header, partition_key.len() as u64);
        header.extend(partition_key);
        push_varint(&mut header, row_id.id.len() as u64 + 1);
        header.push(row_id.table as u8 | if terms.is_empty() { 0 } else { HAS_TERMS });
        header.extend(row_id.id.as_bytes());
        if !terms.is_empty() {
            push_varint(&mut header, terms.len() as u64);
            header.extend(terms.as_bytes());
        }
        encode_meta(&mut header, &row);
        Self { header: header.into(), value: row.value, stamp: row.version.stamp }
    }

    /// Replaces the row under the same id. The header keeps its allocation if the new one has the same length.
    pub(super) fn rewrite(&mut self, terms: &str, row: Row) {
        if terms != self.terms() {
            let (table, id) = (self.table(), self.id());
            *self = Self::new(self.partition_key(), RowId { table, id: &id }, terms, row);
            return;
        }
        let ids_len = self.header.len() - self.meta_bytes().len();
        let mut header = std::mem::take(&mut self.header).into_vec();
        header.truncate(ids_len);
        encode_meta(&mut header, &row);
        (self.header, self.value, self.stamp) = (header.into(), row.value, row.version.stamp);
    }

    /// The same row with another partition key.
    pub(super) fn with_partition_key(self, partition_key: &[u8]) -> Self {
        let (table, id) = (self.table(), self.id());
        Self::new(partition_key, RowId { table, id: &id }, self.terms(), self.row())
    }

    /// Empty if `PartitionRows` stores the key.
    pub(super) fn partition_key(&self) -> &[u8] {
        let mut rest = &*self.header;
        take_slice(&mut rest)
    }

    /// The number of the table and the bytes of the id: rows are sorted by them.
    pub(super) fn sort_key(&self) -> (u8, &[u8]) {
        let mut rest = &*self.header;
        take_slice(&mut rest);
        let key = take_slice(&mut rest);
        (key[0] & !HAS_TERMS, &key[1..])
    }

    /// The text of the index terms.
    pub(super) fn terms(&self) -> &str {
        str::from_utf8(self.split_header().0).expect("terms are valid UTF-8")
    }

    pub(super) fn table(&self) -> Table {
        Table::ALL[usize::from(self.sort_key().0)]
    }

    pub(super) fn id(&self) -> SmolStr {
        str::from_utf8(self.sort_key().1).expect("ids are valid UTF-8").into()
    }

    /// The approximate memory of the row if it is trimmable, otherwise 0.
    pub(super) fn trimmable_bytes(&self) -> usize {
        trimmable_bytes(self.table(), self.sort_key().1.len(), self.value.len())
    }

    /// Compares the sort key of this row with an id.
    pub(super) fn cmp_id(&self, row_id: RowId<'_>) -> Ordering {
        self.sort_key().cmp(&(row_id.table as u8, row_id.id.as_bytes()))
    }

    pub(super) fn row(&self) -> Row {
        self.with_meta(self.meta())
    }

    /// The row, unless it has expired.
    pub(super) fn row_at(&self, now: Timestamp) -> Option<Row> {
        self.meta_at(now).map(|meta| self.with_meta(meta))
    }

    fn with_meta(&self, meta: RowMeta) -> Row {
        let RowMeta { version, schema, expires, created, updated } = meta;
        Row { version, schema, value: self.value.clone(), expires, created, updated }
    }

    /// The metadata, unless the row has expired.
    pub(super) fn meta_at(&self, now: Timestamp) -> Option<RowMeta> {
        Some(self.meta()).filter(|meta| meta.expires.is_none_or(|at| at > now))
    }

    /// The metadata.
    pub(super) fn meta(&self) -> RowMeta {
        let mut rest = self.meta_bytes();
        let version = RowVersion { number: take_varint(&mut rest), stamp: self.stamp };
        let schema = u32::try_from(take_varint(&mut rest)).expect("a schema version has 32 bits");
        let created = zigzag_decode(take_varint(&mut rest));
        let from_delta = |delta: u64| Timestamp::from_millis(created.wrapping_add(zigzag_decode(delta)));
        let updated = from_delta(take_varint(&mut rest));
        let expires = (!rest.is_empty()).then(|| from_delta(take_varint(&mut rest)));
        RowMeta { version, schema, expires, created: Timestamp::from_millis(created), updated }
    }

    pub(super) fn expires(&self) -> Option<Timestamp> {
        self.meta().expires
    }

    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires().is_some_and(|at| at <= now)
    }

    fn meta_bytes(&self) -> &[u8] {
        self.split_header().1
    }

    /// The parts of the header after the keys: the index terms and the metadata.
    fn split_header(&self) -> (&[u8], &[u8]) {
        let mut rest = &*self.header;
        take_slice(&mut rest);
        let has_terms = take_slice(&mut rest)[0] & HAS_TERMS != 0;
        let terms = if has_terms { take_slice(&mut rest) } else { &[] };
        (terms, rest)
    }
}

/// The approximate memory of a row with an id and a value of these lengths, if its table is trimmable, otherwise 0.
pub(super) fn trimmable_bytes(table: Table, id_len: usize, value_len: usize) -> usize {
    if table.is_trimmable() { value_len + id_len + OVERHEAD_BYTES } else { 0 }
}

/// The exact length, so that converting the `Vec` into a box never reallocates.
fn header_len(partition_key: &[u8], row_id: RowId<'_>, terms: &str, row: &Row) -> usize {
    let terms_len = if terms.is_empty() { 0 } else { varint_len(terms.len() as u64) + terms.len() };
    let ids = partition_key.len() + row_id.id.len() + 1 + terms_len;
    let lengths = varint_len(partition_key.len() as u64) + varint_len(row_id.id.len() as u64 + 1);
    ids + lengths + meta_fields(row).into_iter().flatten().map(varint_len).sum::<usize>()
}

fn encode_meta(header: &mut Vec<u8>, row: &Row) {
    meta_fields(row).into_iter().flatten().for_each(|number| push_varint(header, number));
}

fn meta_fields(row: &Row) -> [Option<u64>; 5] {
    let created = row.created.millis();
    // Wrapping, because timestamps may be at the limits of `i64`; wrapping on decode restores the exact value.
    let delta = |at: Timestamp| zigzag_encode(at.millis().wrapping_sub(created));
    let numbers = [row.version.number, u64::from(row.schema), zigzag_encode(created), delta(row.updated)];
    let [version, schema, created, updated] = numbers.map(Some);
    [version, schema, created, updated, row.expires.map(delta)]
}

/// LEB128: seven bits per byte, lowest first; the eighth bit says that more bytes follow.
fn push_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

#[inline]
fn take_varint(bytes: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (first, rest) = bytes.split_first().expect("the header is complete");
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        // Nearly all numbers fit in one byte.
        if *first < 0x80 {
            return number;
        }
        shift += 7;
    }
}

/// The encoded length of a number.
fn varint_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

#[inline]
fn take_slice<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let length = take_varint(bytes) as usize;
    let (slice, rest) = bytes.split_at(length);
    *bytes = rest;
    slice
}

/// Maps small numbers of either sign to small unsigned numbers.
fn zigzag_encode(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn zigzag_decode(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EDGES: [i64; 7] = [i64::MIN, -1, 0, 1, 127, 1_704_110_400_000, i64::MAX];

    fn any_timestamp() -> impl Strategy<Value = Timestamp> {
        prop_oneof![any::<i64>(), proptest::sample::select(EDGES.as_slice())].prop_map(Timestamp::from_millis)
    }

    proptest! {
        #[test]
        fn a_row_is_read_back_as_it_was_written(
            partition_key in "[a-z/]{0,200}", id in ".{0,200}", table in 0..Table::ALL.len(), times in [any_timestamp(), any_timestamp()], terms in "(\n[a-z=]{1,99}\n)?",
            expires in proptest::option::of(any_timestamp()), number: u64, stamp: u64, schema: u32,
        ) {
            let [created, updated] = times;
            let value: Arc<[u8]> = id.as_bytes().into();
            let row = Row { version: RowVersion { number, stamp }, schema, value, expires, created, updated };
            let row_id = RowId { table: Table::ALL[table], id: &id };
            let mut packed = PackedRow::new(partition_key.as_bytes(), row_id, &terms, row.clone());
            prop_assert_eq!(packed.header.len(), header_len(partition_key.as_bytes(), row_id, &terms, &row));
            prop_assert_eq!(packed.row(), row.clone());
            prop_assert_eq!((packed.expires(), packed.terms()), (expires, &*terms));
            prop_assert_eq!((packed.partition_key(), packed.table(), &*packed.id()), (partition_key.as_bytes(), row_id.table, &*id));
            let other = Row { version: RowVersion { number: 1, stamp: 2 }, expires: None, ..row };
            packed.rewrite(&terms, other.clone());
            prop_assert_eq!((packed.row(), packed.terms()), (other.clone(), &*terms));
            packed.rewrite("\nt=1\n", other.clone());
            prop_assert_eq!((packed.row(), packed.partition_key(), &*packed.id()), (other.clone(), partition_key.as_bytes(), &*id));
            let packed = packed.with_partition_key(b"x");
            prop_assert_eq!((packed.row(), packed.partition_key(), &*packed.id()), (other, b"x".as_slice(), &*id));
            prop_assert_eq!(packed.terms(), "\nt=1\n");
        }
    }
}

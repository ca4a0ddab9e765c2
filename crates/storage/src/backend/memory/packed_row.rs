//! A row as the store in memory keeps it: one small text for everything but its value.
//!
//! In: a row and its name. Out: the same, read back. Numbers take as many bytes as they need, and times are kept as what
//! they are apart, so that a million small rows cost little more than their values. The value is the one that was handed
//! in, never a copy: whoever loads the row shares it.

use std::{cmp::Ordering, sync::Arc};

use smol_str::SmolStr;

use crate::backend::{Row, RowVersion, Table};
use toolhub_types::timestamp::Timestamp;

/// A stored row.
pub(super) struct PackedRow {
    /// The length of the address and the address (empty where the drawer knows it), the length of the name and the name
    /// (the table's number and the id), then version, layout, creation, last writing and end. The last one is absent
    /// where the row has no end.
    header: Box<[u8]>,
    value: Arc<[u8]>,
    stamp: u64,
}

/// What is known of a row beside its value.
#[derive(Clone, Copy)]
pub(super) struct RowMeta {
    pub(super) version: RowVersion,
    pub(super) schema: u32,
    pub(super) expires: Option<Timestamp>,
    pub(super) created: Timestamp,
    pub(super) updated: Timestamp,
}

/// The name of a row inside its partition.
#[derive(Clone, Copy)]
pub(super) struct RowId<'a> {
    pub(super) table: Table,
    pub(super) id: &'a str,
}

impl PackedRow {
    pub(super) fn new(address: &[u8], name: RowId<'_>, row: Row) -> Self {
        let mut head = Vec::with_capacity(header_len(address, name, &row));
        push_varint(&mut head, address.len() as u64);
        head.extend(address);
        push_varint(&mut head, name.id.len() as u64 + 1);
        head.push(name.table as u8);
        head.extend(name.id.as_bytes());
        encode_meta(&mut head, &row);
        Self { header: head.into(), value: row.value, stamp: row.version.stamp }
    }

    /// The same name with another row. The head stays where it is if the new one is as long.
    pub(super) fn rewrite(&mut self, row: Row) {
        let names = self.header.len() - self.meta_bytes().len();
        let mut head = std::mem::take(&mut self.header).into_vec();
        head.truncate(names);
        encode_meta(&mut head, &row);
        (self.header, self.value, self.stamp) = (head.into(), row.value, row.version.stamp);
    }

    /// The same row with another address.
    pub(super) fn with_partition_key(self, address: &[u8]) -> Self {
        let (table, id) = (self.table(), self.id());
        Self::new(address, RowId { table, id: &id }, self.row())
    }

    /// Empty where the drawer keeps it.
    pub(super) fn partition_key(&self) -> &[u8] {
        let mut rest = &*self.header;
        take_slice(&mut rest)
    }

    /// The number of the table and the bytes of the id, in the order of which rows are kept.
    pub(super) fn sort_key(&self) -> (u8, &[u8]) {
        let mut rest = &*self.header;
        take_slice(&mut rest);
        let name = take_slice(&mut rest);
        (name[0], &name[1..])
    }

    pub(super) fn table(&self) -> Table {
        Table::ALL[usize::from(self.sort_key().0)]
    }

    pub(super) fn id(&self) -> SmolStr {
        str::from_utf8(self.sort_key().1).expect("an id was text").into()
    }

    /// Where this row lies beside a name.
    pub(super) fn cmp_id(&self, name: RowId<'_>) -> Ordering {
        self.sort_key().cmp(&(name.table as u8, name.id.as_bytes()))
    }

    pub(super) fn row(&self) -> Row {
        self.with_meta(self.meta())
    }

    /// The row, unless it has expired.
    pub(super) fn row_at(&self, now: Timestamp) -> Option<Row> {
        self.meta_at(now).map(|facts| self.with_meta(facts))
    }

    fn with_meta(&self, facts: RowMeta) -> Row {
        let RowMeta { version: seen, schema, expires, created, updated } = facts;
        Row { version: seen, schema, value: self.value.clone(), expires, created, updated }
    }

    /// All of the row but its value, unless it has expired.
    pub(super) fn meta_at(&self, now: Timestamp) -> Option<RowMeta> {
        Some(self.meta()).filter(|facts| facts.expires.is_none_or(|at| at > now))
    }

    /// All of the row but its value.
    pub(super) fn meta(&self) -> RowMeta {
        let mut rest = self.meta_bytes();
        let seen = RowVersion { number: take_varint(&mut rest), stamp: self.stamp };
        let schema = u32::try_from(take_varint(&mut rest)).expect("a layout was 32 bits");
        let created = zigzag_decode(take_varint(&mut rest));
        let later = |apart: u64| Timestamp::from_millis(created.wrapping_add(zigzag_decode(apart)));
        let updated = later(take_varint(&mut rest));
        let expires = (!rest.is_empty()).then(|| later(take_varint(&mut rest)));
        RowMeta { version: seen, schema, expires, created: Timestamp::from_millis(created), updated }
    }

    pub(super) fn expires(&self) -> Option<Timestamp> {
        self.meta().expires
    }

    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires().is_some_and(|at| at <= now)
    }

    /// What stands behind the names.
    fn meta_bytes(&self) -> &[u8] {
        let mut rest = &*self.header;
        take_slice(&mut rest);
        take_slice(&mut rest);
        rest
    }
}

/// Exactly, so that nothing is allocated in vain.
fn header_len(address: &[u8], name: RowId<'_>, row: &Row) -> usize {
    let names = address.len() + name.id.len() + 1;
    let lengths = varint_len(address.len() as u64) + varint_len(name.id.len() as u64 + 1);
    names + lengths + meta_fields(row).into_iter().flatten().map(varint_len).sum::<usize>()
}

fn encode_meta(head: &mut Vec<u8>, row: &Row) {
    meta_fields(row).into_iter().flatten().for_each(|number| push_varint(head, number));
}

fn meta_fields(row: &Row) -> [Option<u64>; 5] {
    let created = row.created.millis();
    // Wrapping, because a moment may be the last one there is: taken apart and put together it is the same again.
    let apart = |at: Timestamp| zigzag_encode(at.millis().wrapping_sub(created));
    let numbers = [row.version.number, u64::from(row.schema), zigzag_encode(created), apart(row.updated)];
    let [version, schema, created, updated] = numbers.map(Some);
    [version, schema, created, updated, row.expires.map(apart)]
}

/// Seven bits a byte, the lowest first; the eighth says that more follow.
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
        let (first, rest) = bytes.split_first().expect("a head is whole");
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        // Nearly all numbers are short.
        if *first < 0x80 {
            return number;
        }
        shift += 7;
    }
}

/// How many bytes a number takes.
fn varint_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

#[inline]
fn take_slice<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let length = take_varint(bytes) as usize;
    let (piece, rest) = bytes.split_at(length);
    *bytes = rest;
    piece
}

/// Small numbers stay small, whichever sign they have.
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
            address in "[a-z/]{0,200}", id in ".{0,200}", table in 0..Table::ALL.len(), times in [any_timestamp(), any_timestamp()],
            expires in proptest::option::of(any_timestamp()), number: u64, stamp: u64, schema: u32,
        ) {
            let [created, updated] = times;
            let value: Arc<[u8]> = id.as_bytes().into();
            let row = Row { version: RowVersion { number, stamp }, schema, value, expires, created, updated };
            let name = RowId { table: Table::ALL[table], id: &id };
            let mut slip = PackedRow::new(address.as_bytes(), name, row.clone());
            prop_assert_eq!(slip.header.len(), header_len(address.as_bytes(), name, &row));
            prop_assert_eq!(slip.row(), row.clone());
            prop_assert_eq!(slip.expires(), expires);
            prop_assert_eq!((slip.partition_key(), slip.table(), &*slip.id()), (address.as_bytes(), name.table, &*id));
            let other = Row { version: RowVersion { number: 1, stamp: 2 }, expires: None, ..row };
            slip.rewrite(other.clone());
            prop_assert_eq!((slip.row(), slip.partition_key(), &*slip.id()), (other.clone(), address.as_bytes(), &*id));
            let slip = slip.with_partition_key(b"x");
            prop_assert_eq!((slip.row(), slip.partition_key(), &*slip.id()), (other, b"x".as_slice(), &*id));
        }
    }
}

//! Row format in SQLite: columns with checksums.
//!
//! In: columns. Out: a `Row`, or the damage. The record has its own checksum, so that a write can verify the row it replaces
//! without reading the record.

use std::fmt::Write;

use crc32fast::Hasher;
use rusqlite::{Result, types::FromSql};
use toolhub_storage::{
    backend::{Partition, Row, RowVersion, StoreError, Table},
    clock::Timestamp,
};

use super::error::is_damage;

/// Enough for the columns and the name of a typical row.
const CHECKSUM_BUFFER_BYTES: usize = 256;

/// The full name of a row, as text.
#[derive(Clone, Copy)]
pub(super) struct RowName<'a> {
    pub(super) partition: &'a str,
    pub(super) table: Table,
    pub(super) id: &'a str,
}

/// All columns of a row except for the record.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowHead {
    pub(super) version: u64,
    pub(super) stamp: u64,
    pub(super) layout: u32,
    pub(super) expires: Option<Timestamp>,
    pub(super) created: Timestamp,
    pub(super) updated: Timestamp,
    /// The checksum of the record.
    pub(super) body_checksum: u32,
}

impl RowName<'_> {
    /// A `Damaged` error for this row.
    pub(super) fn damaged_error(&self, reason: impl Into<String>) -> StoreError {
        StoreError::Damaged { table: self.table, id: self.id.into(), reason: reason.into() }
    }
}

/// The text of a partition. Preallocated, because every load and every write needs it.
pub(super) fn partition_key(partition: &Partition) -> String {
    let mut text = String::with_capacity(96);
    // Writing to a `String` cannot fail.
    let _ = write!(text, "{partition}");
    text
}

/// The checksum of concatenated slices. Hashing one contiguous buffer is several times as fast as hashing slice by slice.
fn crc32_of(slices: &[&[u8]]) -> u32 {
    let (mut buffer, mut end) = ([0; CHECKSUM_BUFFER_BYTES], 0);
    if slices.iter().map(|slice| slice.len()).sum::<usize>() > CHECKSUM_BUFFER_BYTES {
        let mut hasher = Hasher::new();
        slices.iter().for_each(|slice| hasher.update(slice));
        return hasher.finalize();
    }
    for slice in slices {
        buffer[end..end + slice.len()].copy_from_slice(slice);
        end += slice.len();
    }
    crc32fast::hash(&buffer[..end])
}

/// The checksum of a record.
pub(super) fn crc32_of_body(value: &[u8]) -> u32 {
    crc32fast::hash(value)
}

impl RowHead {
    /// Reads the columns `version, stamp, layout, expires, created, updated, body, head` from `at` on; the inner `Err` is damage.
    pub(super) fn read(row: &rusqlite::Row<'_>, at: usize, name: RowName<'_>) -> Result<Result<Self, StoreError>> {
        let (version, stamp) = (column::<i64>(row, at)?, column::<i64>(row, at + 1)?);
        let (layout, expires) = (column::<u32>(row, at + 2)?, column::<Option<i64>>(row, at + 3)?);
        let (created, updated) = (column(row, at + 4)?, column(row, at + 5)?);
        let (body, checksum) = (column(row, at + 6)?, column::<u32>(row, at + 7)?);
        let (Some(version), Some(stamp), Some(layout), Some(expires)) = (version, stamp, layout, expires) else {
            return Ok(Err(name.damaged_error("its columns are unreadable")));
        };
        let (Some(created), Some(updated), Some(body), Some(checksum)) = (created, updated, body, checksum) else {
            return Ok(Err(name.damaged_error("its columns are unreadable")));
        };
        let (version, stamp, time) = (version.cast_unsigned(), stamp.cast_unsigned(), Timestamp::from_millis);
        let expires = expires.map(time);
        let head = Self {
            version,
            stamp,
            layout,
            expires,
            created: time(created),
            updated: time(updated),
            body_checksum: body,
        };
        let is_intact = head.checksum(name) == checksum;
        Ok(if is_intact { Ok(head) } else { Err(name.damaged_error("its checksum is wrong")) })
    }

    /// The checksum of these columns and the row's name.
    pub(super) fn checksum(&self, name: RowName<'_>) -> u32 {
        let expires = self.expires.map_or([0; 9], |at| {
            let mut bytes = [1; 9];
            bytes[1..].copy_from_slice(&at.millis().to_le_bytes());
            bytes
        });
        let mut columns = [0; 49];
        columns[..8].copy_from_slice(&self.version.to_le_bytes());
        columns[8..16].copy_from_slice(&self.stamp.to_le_bytes());
        columns[16..20].copy_from_slice(&self.layout.to_le_bytes());
        columns[20..29].copy_from_slice(&expires);
        columns[29..37].copy_from_slice(&self.created.millis().to_le_bytes());
        columns[37..45].copy_from_slice(&self.updated.millis().to_le_bytes());
        columns[45..].copy_from_slice(&self.body_checksum.to_le_bytes());
        let texts = [name.partition, name.table.as_str(), name.id];
        // Length-prefixed, so that different names cannot produce the same bytes.
        let lengths = texts.map(|text| (text.len() as u64).to_le_bytes());
        let [partition, table, id] = texts.map(str::as_bytes);
        crc32_of(&[&lengths[0], partition, &lengths[1], table, &lengths[2], id, &columns])
    }

    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }

    pub(super) fn row_version(&self) -> RowVersion {
        RowVersion { number: self.version, stamp: self.stamp }
    }
}

/// Reads the whole row, with the record in the column after the head; `None` if it has expired.
pub(super) fn read(
    row: &rusqlite::Row<'_>,
    at: usize,
    name: RowName<'_>,
    now: Timestamp,
) -> Result<Result<Option<Row>, StoreError>> {
    let head = match RowHead::read(row, at, name)? {
        Ok(head) if head.is_expired(now) => return Ok(Ok(None)),
        Ok(head) => head,
        Err(damaged) => return Ok(Err(damaged)),
    };
    let Ok(value) = row.get_ref(at + 8)?.as_blob() else {
        return Ok(Err(name.damaged_error("its record is unreadable")));
    };
    if crc32_of_body(value) != head.body_checksum {
        return Ok(Err(name.damaged_error("the checksum of its record is wrong")));
    }
    let RowHead { layout: schema, expires, created, updated, .. } = head;
    Ok(Ok(Some(Row { version: head.row_version(), schema, value: value.into(), expires, created, updated })))
}

/// A column; `None` if it does not have the expected type.
fn column<T: FromSql>(row: &rusqlite::Row<'_>, at: usize) -> Result<Option<T>> {
    match row.get(at) {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_damage(&error) || matches!(error, rusqlite::Error::IntegralValueOutOfRange(..)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_the_sum_of_the_whole_however_long_they_are() {
        let bytes: Vec<u8> = (0..=255).cycle().take(2 * CHECKSUM_BUFFER_BYTES).collect();
        for length in [
            0,
            1,
            CHECKSUM_BUFFER_BYTES - 1,
            CHECKSUM_BUFFER_BYTES,
            CHECKSUM_BUFFER_BYTES + 1,
            2 * CHECKSUM_BUFFER_BYTES,
        ] {
            let (whole, half) = (&bytes[..length], length / 2);
            assert_eq!(crc32_of(&[&whole[..half], &[], &whole[half..]]), crc32fast::hash(whole), "{length}");
        }
    }
}

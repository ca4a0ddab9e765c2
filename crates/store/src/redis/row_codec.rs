//! Encoding of a row as the value of a hash field.
//!
//! In: a put, or a stored value. Out: the part of the value that the client knows, or the row, or the damage. `script/rows.lua` describes
//! the layout. The checksum covers the name of the row and all that a put brings; version and times are set by the script.

use crc32fast::Hasher;
use toolhub_storage::{
    backend::{Row, RowVersion, StoreError, Table, Terms},
    clock::Timestamp,
};

/// The length of everything before the terms.
const HEAD_BYTES: usize = 52;
/// `expires` of a row that never does.
const NEVER: i64 = i64::MAX;

/// The name of a row, as text.
#[derive(Clone, Copy)]
pub(super) struct RowName<'a> {
    pub(super) partition: &'a str,
    pub(super) table: Table,
    pub(super) id: &'a str,
}

/// A stored row with its terms.
pub(super) struct StoredRow {
    pub(super) row: Row,
    pub(super) terms: Terms,
}

impl RowName<'_> {
    fn damaged_error(&self, reason: &str) -> StoreError {
        StoreError::Damaged { table: self.table, id: self.id.into(), reason: reason.into() }
    }
}

/// An expiry as the script stores it.
pub(super) fn encode_expiry(expires: Option<Timestamp>) -> [u8; 8] {
    expires.map_or(NEVER, Timestamp::millis).to_be_bytes()
}

/// The part of a value from `updated` on.
pub(super) fn encode_rest(
    name: RowName<'_>,
    stamp: u64,
    schema: u32,
    terms: &Terms,
    value: &[u8],
    now: Timestamp,
) -> Vec<u8> {
    let terms = terms.as_str().as_bytes();
    // A text of terms that is too long is refused before.
    let terms_len = u32::try_from(terms.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(HEAD_BYTES + terms.len() + value.len());
    bytes.extend(now.millis().to_be_bytes());
    bytes.extend(stamp.to_be_bytes());
    bytes.extend(schema.to_be_bytes());
    bytes.extend(checksum(name, stamp, schema, terms, value).to_be_bytes());
    bytes.extend(terms_len.to_be_bytes());
    bytes.extend(terms);
    bytes.extend(value);
    bytes
}

/// Reads a stored value; `None` if the row has expired.
pub(super) fn decode(name: RowName<'_>, bytes: &[u8], now: Timestamp) -> Result<Option<StoredRow>, StoreError> {
    let number = |at: usize| bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
    let short = |at: usize| bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
    let head = || {
        let time = |at| number(at).map(u64::cast_signed);
        Some((number(0)?, time(8)?, time(16)?, time(24)?, number(32)?, short(40)?, short(44)?, short(48)?))
    };
    let Some((version, created, expires, updated, stamp, schema, expected, terms_len)) = head() else {
        return Err(name.damaged_error("it is too short"));
    };
    let expires = (expires != NEVER).then(|| Timestamp::from_millis(expires));
    if expires.is_some_and(|at| at <= now) {
        return Ok(None);
    }
    let Some((terms, value)) = bytes[HEAD_BYTES..].split_at_checked(terms_len as usize) else {
        return Err(name.damaged_error("its index terms are incomplete"));
    };
    let is_intact = checksum(name, stamp, schema, terms, value) == expected;
    let terms = str::from_utf8(terms).ok().filter(|_| is_intact);
    let Some(terms) = terms.map(Terms::from_text) else {
        return Err(name.damaged_error("its checksum is wrong"));
    };
    let (created, updated) = (Timestamp::from_millis(created), Timestamp::from_millis(updated));
    let version = RowVersion { number: version, stamp };
    Ok(Some(StoredRow { row: Row { version, schema, value: value.into(), expires, created, updated }, terms }))
}

fn checksum(name: RowName<'_>, stamp: u64, schema: u32, terms: &[u8], value: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    let texts = [name.partition.as_bytes(), name.table.as_str().as_bytes(), name.id.as_bytes(), terms];
    for text in texts {
        // Length-prefixed, so that different names cannot produce the same bytes.
        hasher.update(&(text.len() as u64).to_be_bytes());
        hasher.update(text);
    }
    hasher.update(&stamp.to_be_bytes());
    hasher.update(&schema.to_be_bytes());
    hasher.update(value);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: RowName<'_> = RowName { partition: "main/t/a", table: Table::State, id: "x" };
    const NOW: Timestamp = Timestamp::from_millis(5);

    fn value(expires: Option<Timestamp>) -> Vec<u8> {
        let terms = Terms::new(["a", "b"]);
        let head = [7_u64.to_be_bytes(), 3_i64.to_be_bytes(), encode_expiry(expires)].concat();
        [head, encode_rest(NAME, 9, 2, &terms, b"record", NOW)].concat()
    }

    #[test]
    fn a_row_is_read_back_and_damage_is_noticed() {
        let expires = Some(Timestamp::from_millis(6));
        for expires in [None, expires] {
            let stored = decode(NAME, &value(expires), NOW).unwrap().unwrap();
            let Row { version, schema, value, created, updated, .. } = stored.row;
            assert_eq!((version.number, version.stamp, schema, &*value), (7, 9, 2, &b"record"[..]));
            assert_eq!((created.millis(), updated, stored.row.expires), (3, NOW, expires));
            assert_eq!(stored.terms, Terms::new(["a", "b"]));
        }
        assert!(decode(NAME, &value(Some(NOW)), NOW).unwrap().is_none(), "it has expired");
        let intact = value(None);
        for length in 0..intact.len() {
            assert!(decode(NAME, &intact[..length], NOW).is_err(), "cut off after {length}");
        }
        for at in 32..intact.len() {
            let mut damaged = intact.clone();
            damaged[at] ^= 1;
            assert!(decode(NAME, &damaged, NOW).is_err(), "byte {at}");
        }
        assert!(decode(RowName { id: "y", ..NAME }, &intact, NOW).is_err(), "it is the row of another name");
    }
}

//! JSON encoding of records as row values.

use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};
use smol_str::SmolStr;

use super::{Row, RowVersion, StoreError, Table};

/// Encodes a record as JSON.
///
/// # Errors
/// When the record cannot be represented in JSON.
pub fn encode<T: Serialize>(table: Table, id: &SmolStr, record: &T) -> Result<Arc<[u8]>, StoreError> {
    serde_json::to_vec(record).map(Into::into).map_err(|error| StoreError::unreadable(table, id.clone(), &error))
}

/// Decodes the record in a row of this layout; returns it with the row's version.
///
/// # Errors
/// When the row has another layout or cannot be parsed.
pub fn decode<T: DeserializeOwned>(
    table: Table,
    id: &SmolStr,
    layout: u32,
    row: &Row,
) -> Result<(T, RowVersion), StoreError> {
    if row.schema != layout {
        return Err(StoreError::unknown_layout(table, id.clone(), row.schema, layout));
    }
    let record = serde_json::from_slice(&row.value);
    record.map(|record| (record, row.version)).map_err(|error| StoreError::unreadable(table, id.clone(), &error))
}

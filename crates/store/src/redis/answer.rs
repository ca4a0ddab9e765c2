//! Reads the answers of scripts.
//!
//! In: values of the Redis protocol. Out: arrays, texts, numbers. An answer of another shape is an error, never a guess.

use redis::Value;
use toolhub_storage::backend::StoreError;

/// The answer does not have the expected shape.
pub(super) fn unexpected() -> StoreError {
    StoreError::Unavailable(
        "Redis returned an unexpected answer; another program may use the same `store.key_prefix`".into(),
    )
}

/// The elements of an array.
pub(super) fn into_array(value: Value) -> Result<Vec<Value>, StoreError> {
    value.into_sequence().map_err(|_| unexpected())
}

pub(super) fn into_bytes(value: Value) -> Result<Vec<u8>, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(text) => Ok(text.into_bytes()),
        _ => Err(unexpected()),
    }
}

pub(super) fn into_text(value: Value) -> Result<String, StoreError> {
    String::from_utf8(into_bytes(value)?).map_err(|_| unexpected())
}

pub(super) fn as_integer(value: &Value) -> Result<i64, StoreError> {
    match value {
        Value::Int(number) => Ok(*number),
        _ => Err(unexpected()),
    }
}

//! Estimates how much memory a parsed value takes.
//!
//! In: a value or its text. Out: bytes, as the allocator gives them out for lists and maps of `serde_json`.

use serde_json::Value;

use super::{JsonLimits, scan};

/// Size of a value without what it points to.
const SLOT: usize = size_of::<Value>();
/// A list allocates room for at least so many values.
const MIN_CAPACITY: usize = 4;
/// Size of a node of a map.
const NODE: usize = 640;
/// Members in a node, on average.
const MEMBERS_PER_NODE: usize = 8;

/// Estimated size of a value in memory.
#[must_use]
pub fn estimated_bytes(value: &Value) -> usize {
    SLOT + heap_bytes(value)
}

/// Estimated size in memory of the value that a text would be parsed to.
#[must_use]
pub fn parsed_bytes(text: &[u8]) -> usize {
    let unlimited = JsonLimits { values: usize::MAX, depth: usize::MAX };
    let counts = scan::count(text, unlimited).unwrap_or_default();
    text.len() + counts.values * SLOT + counts.arrays * list_bytes(1) + counts.objects * NODE
}

/// Whether a value takes more than this in memory. Stops as soon as it is known.
pub(super) fn exceeds(value: &Value, limit: usize) -> bool {
    fn rest(value: &Value, left: usize) -> Option<usize> {
        match value {
            Value::Array(items) => {
                let left = left.checked_sub(list_bytes(items.len()))?;
                items.iter().try_fold(left, |left, item| rest(item, left))
            }
            Value::Object(members) => {
                let left = left.checked_sub(map_bytes(members.len()))?;
                members.iter().try_fold(left, |left, (name, value)| rest(value, left.checked_sub(name.len())?))
            }
            scalar => left.checked_sub(heap_bytes(scalar)),
        }
    }
    rest(value, limit).is_none()
}

fn heap_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => list_bytes(items.len()) + items.iter().map(heap_bytes).sum::<usize>(),
        Value::Object(members) => {
            map_bytes(members.len()) + members.iter().map(|(name, value)| name.len() + heap_bytes(value)).sum::<usize>()
        }
    }
}

fn list_bytes(items: usize) -> usize {
    if items == 0 { 0 } else { items.max(MIN_CAPACITY) * SLOT }
}

fn map_bytes(members: usize) -> usize {
    members.div_ceil(MEMBERS_PER_NODE) * NODE
}

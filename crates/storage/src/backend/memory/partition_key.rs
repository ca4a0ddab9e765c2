//! Lookup key of a partition in the in-memory backend: its text.
//!
//! In: a partition. Out: its text as bytes, on the stack if it is short; and the partition parsed back from these bytes.

use std::fmt::{self, Write};

use crate::backend::{Partition, PartitionKind};
use toolhub_types::ids::Tenant;

/// Enough for typical tenant and thread names, and for every generated id.
const INLINE_CAPACITY: usize = 96;

/// The text of a partition as bytes.
pub(super) struct PartitionKey {
    inline: [u8; INLINE_CAPACITY],
    length: usize,
    /// The whole text, once it exceeds the inline capacity.
    heap: Vec<u8>,
}

impl PartitionKey {
    pub(super) fn new(partition: &Partition) -> Self {
        let mut partition_key = Self { inline: [0; INLINE_CAPACITY], length: 0, heap: Vec::new() };
        // Every call looks up a thread, so its text is concatenated without formatting.
        if let PartitionKind::Thread(thread) = &partition.kind {
            for part in [partition.tenant.as_str(), "/t/", thread.as_str()] {
                partition_key.push(part.as_bytes());
            }
        } else {
            write!(partition_key, "{partition}").expect("writing to memory cannot fail");
        }
        partition_key
    }

    /// The common prefix of all partition keys of a tenant.
    pub(super) fn tenant_prefix(tenant: &Tenant) -> Vec<u8> {
        format!("{tenant}/").into_bytes()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        if self.heap.is_empty() { &self.inline[..self.length] } else { &self.heap }
    }

    fn push(&mut self, part: &[u8]) {
        let end = self.length + part.len();
        if self.heap.is_empty() && end <= INLINE_CAPACITY {
            self.inline[self.length..end].copy_from_slice(part);
        } else {
            if self.heap.is_empty() {
                self.heap.extend(&self.inline[..self.length]);
            }
            self.heap.extend(part);
        }
        self.length = end;
    }
}

impl Write for PartitionKey {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// Parses a partition key back.
pub(super) fn parse_partition(partition_key: &[u8]) -> Partition {
    let text = str::from_utf8(partition_key).expect("partition keys are valid UTF-8");
    text.parse().unwrap_or_else(|_| {
        // A shared state with an empty name is the only partition whose text `FromStr` rejects.
        let tenant = text.strip_suffix("/h/").and_then(|tenant| Tenant::new(tenant).ok());
        Partition { tenant: tenant.expect("the key was made from a partition"), kind: PartitionKind::State("".into()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhub_types::{
        ids::{CallId, IdempotencyKey, ThreadId},
        timestamp::Timestamp,
        tool::ToolName,
    };

    #[test]
    fn an_address_is_the_text_of_its_partition_however_long_it_is() {
        let tenant = |name: &str| Tenant::new(name).unwrap();
        let key = PartitionKind::Key(ToolName::new("pay").unwrap(), IdempotencyKey::new("k/".repeat(120)).unwrap());
        let thread = |length| PartitionKind::Thread(ThreadId::new("t".repeat(length)).unwrap());
        let kinds = [thread(1), thread(88), thread(89), thread(90), thread(128), key, PartitionKind::Grants];
        let kinds = kinds.into_iter().chain([PartitionKind::Call(CallId::mint(Timestamp::from_millis(1)))]);
        for kind in kinds.chain([PartitionKind::State("".into()), PartitionKind::State("a/h/".into())]) {
            let partition = Partition { tenant: tenant("main"), kind };
            let partition_key = PartitionKey::new(&partition);
            assert_eq!(partition_key.as_bytes(), partition.to_string().as_bytes());
            assert_eq!(parse_partition(partition_key.as_bytes()), partition);
        }
    }
}

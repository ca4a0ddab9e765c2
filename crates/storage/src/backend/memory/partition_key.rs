//! The text of a partition, by which the store in memory finds it.
//!
//! In: a partition. Out: its text as bytes, made on the stack where it is short; and the partition those bytes stand for.

use std::fmt::{self, Write};

use crate::backend::{Partition, PartitionKind};
use toolhub_types::ids::Tenant;

/// Enough for a tenant and a thread as people name them, and for every minted id.
const INLINE_CAPACITY: usize = 96;

/// The text of a partition.
pub(super) struct PartitionKey {
    inline: [u8; INLINE_CAPACITY],
    length: usize,
    /// The whole text, once it is too long for the place above.
    heap: Vec<u8>,
}

impl PartitionKey {
    pub(super) fn new(partition: &Partition) -> Self {
        let mut address = Self { inline: [0; INLINE_CAPACITY], length: 0, heap: Vec::new() };
        // Threads are asked for at every call; their text needs no formatting.
        if let PartitionKind::Thread(thread) = &partition.kind {
            for part in [partition.tenant.as_str(), "/t/", thread.as_str()] {
                address.push(part.as_bytes());
            }
        } else {
            write!(address, "{partition}").expect("bytes in memory take any text");
        }
        address
    }

    /// How the texts of all partitions of a tenant begin.
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

/// The partition an address stands for.
pub(super) fn parse_partition(address: &[u8]) -> Partition {
    let text = str::from_utf8(address).expect("an address was made of text");
    text.parse().unwrap_or_else(|_| {
        // A shared state without a name is the one partition whose text is not read back.
        let tenant = text.strip_suffix("/h/").and_then(|tenant| Tenant::new(tenant).ok());
        Partition { tenant: tenant.expect("an address was made of a partition"), kind: PartitionKind::State("".into()) }
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
        let places = [thread(1), thread(88), thread(89), thread(90), thread(128), key, PartitionKind::Grants];
        let places = places.into_iter().chain([PartitionKind::Call(CallId::mint(Timestamp::from_millis(1)))]);
        for place in places.chain([PartitionKind::State("".into()), PartitionKind::State("a/h/".into())]) {
            let asked = Partition { tenant: tenant("main"), kind: place };
            let address = PartitionKey::new(&asked);
            assert_eq!(address.as_bytes(), asked.to_string().as_bytes());
            assert_eq!(parse_partition(address.as_bytes()), asked);
        }
    }
}

//! Names of the keys in Redis, and the bucket of each partition.
//!
//! In: the prefix, the number of buckets, partitions. Out: key names. All keys of a bucket have one tag in braces, so that a Cluster keeps
//! them on one server and a script may use them together.

use toolhub_storage::backend::{Partition, Table};

/// The hash slots of a Cluster.
const SLOTS: u16 = 16_384;

/// The number of buckets of a new store on a Cluster.
pub(super) const CLUSTER_BUCKETS: u16 = 64;
/// More would make scans over all partitions slow.
pub(super) const MAX_BUCKETS: u16 = 1024;

/// The names of all keys of a store.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: String,
    /// Prefix and tag of each bucket: `toolhub:{7}:`.
    buckets: Vec<String>,
    /// The number of the database. All databases of a server share their channels.
    database: i64,
}

/// A bucket, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Bucket(pub(super) usize);

/// The text of a partition in its two parts; together they are its full text.
#[derive(Debug, Clone)]
pub(super) struct PartitionText {
    pub(super) full: String,
    tenant_len: usize,
}

impl PartitionText {
    pub(super) fn new(partition: &Partition) -> Self {
        Self { full: partition.to_string(), tenant_len: partition.tenant.as_str().len() }
    }

    /// The part after the tenant, from the first `/` on.
    pub(super) fn rest(&self) -> &str {
        &self.full[self.tenant_len..]
    }

    pub(super) fn tenant(&self) -> &str {
        &self.full[..self.tenant_len]
    }
}

impl Keys {
    pub(super) fn new(prefix: &str, buckets: u16) -> Self {
        let bucket = |tag: u32| format!("{prefix}:{{{tag}}}:");
        Self { prefix: prefix.to_owned(), buckets: tags(buckets).into_iter().map(bucket).collect(), database: 0 }
    }

    /// The same keys in another number of buckets.
    pub(super) fn with_buckets(&self, buckets: u16) -> Self {
        Self::new(&self.prefix, buckets).in_database(self.database)
    }

    /// The same keys in another database than 0.
    pub(super) fn in_database(mut self, database: i64) -> Self {
        self.database = database;
        self
    }

    /// The key that describes the store: its schema and its number of buckets.
    pub(super) fn description(prefix: &str) -> String {
        format!("{prefix}:store")
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn buckets(&self) -> impl Iterator<Item = Bucket> + use<> {
        (0..self.buckets.len()).map(Bucket)
    }

    /// The bucket of a partition. Stored records depend on it, so it never changes.
    pub(super) fn bucket_of(&self, partition: &str) -> Bucket {
        Bucket(crc32fast::hash(partition.as_bytes()) as usize % self.buckets.len())
    }

    fn key(&self, bucket: Bucket, name: &str) -> String {
        format!("{}{name}", self.buckets[bucket.0])
    }

    /// Hash: the rows of a partition by table and id.
    pub(super) fn rows(&self, bucket: Bucket, partition: &str) -> String {
        format!("{}p:{partition}", self.buckets[bucket.0])
    }

    /// Sorted set: the fields of a large partition.
    pub(super) fn order(&self, bucket: Bucket, partition: &str) -> String {
        format!("{}o:{partition}", self.buckets[bucket.0])
    }

    /// Hash: the epochs, the number of the last commit.
    pub(super) fn meta(&self, bucket: Bucket) -> String {
        self.key(bucket, "meta")
    }

    /// Written before a wait for replicas.
    pub(super) fn replication(&self, bucket: Bucket) -> String {
        self.key(bucket, "replication")
    }

    /// The hash slot of a bucket's keys.
    pub(super) fn slot(&self, bucket: Bucket) -> u16 {
        let tag = self.buckets[bucket.0].split(['{', '}']).nth(1).unwrap_or_default();
        crc16(tag.as_bytes()) % SLOTS
    }

    /// Sorted set: rows that expire, by the time.
    pub(super) fn expiries(&self, bucket: Bucket) -> String {
        self.key(bucket, "expiries")
    }

    /// Set: the tenants that have or had rows.
    pub(super) fn tenants(&self, bucket: Bucket) -> String {
        self.key(bucket, "tenants")
    }

    /// The answer to the batch with this stamp and digest.
    pub(super) fn answer(&self, bucket: Bucket, stamp: u64, digest: u64) -> String {
        format!("{}a:{stamp:016x}{digest:016x}", self.buckets[bucket.0])
    }

    /// Sorted set: id and partition of each row of a table and tenant.
    pub(super) fn ids(&self, bucket: Bucket, table: Table, tenant: &str) -> String {
        format!("{}i:{table}:{tenant}", self.buckets[bucket.0])
    }

    /// Sorted set: term, id and partition of each row of a table and tenant.
    pub(super) fn terms(&self, bucket: Bucket, table: Table, tenant: &str) -> String {
        format!("{}t:{table}:{tenant}", self.buckets[bucket.0])
    }

    /// The channel on which changes are published.
    pub(super) fn channel(&self, bucket: Bucket) -> String {
        self.key(bucket, &format!("changes:{}", self.database))
    }

    /// The bucket of a channel.
    pub(super) fn bucket_of_channel(&self, channel: &[u8]) -> Option<Bucket> {
        self.buckets().find(|bucket| self.channel(*bucket).as_bytes() == channel)
    }
}

/// A tag for each bucket. Their hash slots lie in the middle of equal parts of all slots, so that any number of servers with equal ranges
/// of slots gets the same number of buckets, give or take one.
fn tags(buckets: u16) -> Vec<u32> {
    let width = SLOTS / buckets;
    let mut tags: Vec<Option<u32>> = vec![None; usize::from(buckets)];
    let mut missing = tags.len();
    for tag in 0_u32.. {
        let slot = crc16(tag.to_string().as_bytes()) % SLOTS;
        let (bucket, offset) = (slot / width, slot % width);
        if offset != width / 2 {
            continue;
        }
        if let Some(free @ None) = tags.get_mut(usize::from(bucket)) {
            *free = Some(tag);
            missing -= 1;
            if missing == 0 {
                break;
            }
        }
    }
    tags.into_iter().flatten().collect()
}

/// The checksum that Redis Cluster uses (XMODEM).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_servers_gets_the_same_number_of_buckets_give_or_take_one() {
        // From the specification of Redis Cluster.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        let keys = Keys::new("toolhub", CLUSTER_BUCKETS);
        let slots: Vec<u32> = keys.buckets().map(|bucket| keys.slot(bucket).into()).collect();
        let slot_count = u32::from(SLOTS);
        assert_eq!(slots.len(), 64);
        for servers in 1..=64 {
            let counts = (0..servers).map(|server| {
                let range = server * slot_count / servers..(server + 1) * slot_count / servers;
                slots.iter().filter(|slot| range.contains(slot)).count()
            });
            let counts: Vec<usize> = counts.collect();
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most - least <= 1, "{servers} servers: {counts:?}");
        }
    }

    #[test]
    fn the_bucket_of_a_partition_never_changes() {
        let keys = Keys::new("toolhub", 64);
        let bucket = keys.bucket_of("main/t/thread");
        assert_eq!(keys.bucket_of_channel(keys.channel(bucket).as_bytes()), Some(bucket));
        assert_eq!(bucket, Bucket(crc32fast::hash(b"main/t/thread") as usize % 64));
        assert_eq!(Keys::new("toolhub", 1).bucket_of("main/t/thread"), Bucket(0));
    }
}

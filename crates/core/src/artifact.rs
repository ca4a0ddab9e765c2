//! Artifacts: tool output too long for the model, stored to be fetched.
//!
//! In: bytes and a MIME type. Out: an unguessable id, with which any caller of the same tenant can fetch them. Each
//! artifact has its own partition, outside any thread. It is deleted with the record of its call, if that call has one, and
//! expires otherwise. The row ids sort by age, so that the oldest artifacts are found when the store is near its size limit.

use std::time::Duration;

use smol_str::format_smolstr;

use toolhub_storage::backend::{
    Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, Row, RowKey, Scan, Scope, StoreError, Table,
    Write,
};
use toolhub_types::{
    content::{Content, UNKNOWN_TYPE},
    ids::{ArtifactId, Tenant},
    timestamp::Timestamp,
};

const ARTIFACT_TTL: Duration = Duration::from_secs(30 * 24 * 3600);
/// It is part of the row's id.
const MAX_MIME_TYPE_LEN: usize = 100;

/// Content that was too long for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// The MIME type, such as `text/plain`.
    pub mime_type: String,
    /// The whole content.
    pub bytes: Vec<u8>,
}

/// Prefix of the row ids of artifacts. A call with an idempotency key outlives others in a store near its size limit, and so do
/// its artifacts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArtifactClass {
    Plain,
    OfKeyedCall,
}

impl ArtifactClass {
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Plain => "a",
            Self::OfKeyedCall => "k",
        }
    }
}

/// Stores an artifact; `None` when the store fails. A MIME type that is none becomes `application/octet-stream`.
pub(crate) async fn save(
    store: &dyn Backend,
    (tenant, class): (&Tenant, ArtifactClass),
    mime_type: &str,
    bytes: Vec<u8>,
    now: Timestamp,
) -> Option<Content> {
    let is_mime_type = mime_type.contains('/') && mime_type.len() <= MAX_MIME_TYPE_LEN;
    let mime_type = if is_mime_type { mime_type } else { UNKNOWN_TYPE };
    let id = ArtifactId::mint();
    let size = bytes.len();
    let write = Write {
        table: Table::Artifacts,
        id: format_smolstr!("{}{:012x} {mime_type}", class.prefix(), now.millis()),
        expect: Expect::Absent,
        change: Change::Put { value: bytes.into(), schema: 1, expires: Some(now + ARTIFACT_TTL) },
        durability: Durability::KillSafe,
    };
    let batch = Batch::new(artifact_partition(tenant, &id)).with(write);
    store.commit(batch, now).await.ok()?;
    Some(Content::Artifact { id, mime_type: mime_type.into(), bytes: size })
}

/// Loads an artifact.
pub(crate) async fn fetch(
    store: &dyn Backend,
    tenant: &Tenant,
    id: &ArtifactId,
    now: Timestamp,
) -> Result<Option<Artifact>, StoreError> {
    let mime_type = |key: &RowKey| key.id.split_once(' ').map_or(&*key.id, |(_, mime_type)| mime_type).to_owned();
    let found = find(store, tenant, id, now).await?;
    Ok(found.map(|(key, row)| Artifact { mime_type: mime_type(&key), bytes: row.value.to_vec() }))
}

/// The only row in the partition of an artifact. Its id has the time and the MIME type, which the caller may not know.
async fn find(
    store: &dyn Backend,
    tenant: &Tenant,
    id: &ArtifactId,
    now: Timestamp,
) -> Result<Option<(RowKey, Row)>, StoreError> {
    let scan = Scan::new(Table::Artifacts, Scope::Partition(artifact_partition(tenant, id))).limit(1);
    Ok(store.scan(scan, now).await?.rows.into_iter().next())
}

/// Deletes the artifacts that this content refers to.
pub(crate) async fn delete(
    store: &dyn Backend,
    tenant: &Tenant,
    pieces: &[Content],
    now: Timestamp,
) -> Result<(), StoreError> {
    for piece in pieces {
        let Content::Artifact { id, .. } = piece else { continue };
        let Some((RowKey { partition, table, id }, _)) = find(store, tenant, id, now).await? else { continue };
        let (expect, durability) = (Expect::Any, Durability::KillSafe);
        let removal = Write { table, id, expect, change: Change::Remove, durability };
        store.commit(Batch::new(partition).with(removal), now).await?;
    }
    Ok(())
}

fn artifact_partition(tenant: &Tenant, id: &ArtifactId) -> Partition {
    Partition { tenant: tenant.clone(), kind: PartitionKind::Artifact(id.clone()) }
}

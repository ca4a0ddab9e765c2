//! Artifacts: tool output too long for the model, stored to be fetched.
//!
//! In: bytes and a MIME type. Out: an unguessable id, with which any caller of the same tenant can fetch them. Each
//! artifact has its own partition, outside any thread. It is deleted with the thread of its call, if that call has a
//! record, and expires otherwise.

use std::time::Duration;

use smol_str::SmolStr;

use toolhub_storage::backend::{
    Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, Scan, Scope, StoreError, Table, Write,
};
use toolhub_types::{
    content::Content,
    ids::{ArtifactId, Tenant},
    timestamp::Timestamp,
};

const ARTIFACT_TTL: Duration = Duration::from_secs(30 * 24 * 3600);

/// Content that was too long for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// The MIME type, such as `text/plain`.
    pub mime_type: String,
    /// The whole content.
    pub bytes: Vec<u8>,
}

/// Stores an artifact; `None` when the store fails.
pub(crate) async fn save(
    store: &dyn Backend,
    tenant: &Tenant,
    mime_type: &str,
    bytes: Vec<u8>,
    now: Timestamp,
) -> Option<Content> {
    let id = ArtifactId::mint();
    let size = bytes.len();
    let write = Write {
        table: Table::Artifacts,
        id: SmolStr::new(mime_type),
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
    // The row id is the MIME type, so scan the partition for its only row.
    let scan = Scan::new(Table::Artifacts, Scope::Partition(artifact_partition(tenant, id))).limit(1);
    let page = store.scan(scan, now).await?;
    let found = page.rows.into_iter().next();
    Ok(found.map(|(key, row)| Artifact { mime_type: key.id.into(), bytes: row.value.to_vec() }))
}

/// Deletes the artifacts that this content refers to.
pub(crate) async fn delete(
    store: &dyn Backend,
    tenant: &Tenant,
    pieces: &[Content],
    now: Timestamp,
) -> Result<(), StoreError> {
    for piece in pieces {
        let Content::Artifact { id, mime_type, .. } = piece else { continue };
        let (expect, durability) = (Expect::Any, Durability::KillSafe);
        let removal =
            Write { table: Table::Artifacts, id: SmolStr::new(mime_type), expect, change: Change::Remove, durability };
        store.commit(Batch::new(artifact_partition(tenant, id)).with(removal), now).await?;
    }
    Ok(())
}

fn artifact_partition(tenant: &Tenant, id: &ArtifactId) -> Partition {
    Partition { tenant: tenant.clone(), kind: PartitionKind::Artifact(id.clone()) }
}

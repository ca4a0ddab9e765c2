//! Content too long for the model, kept to be fetched.
//!
//! Each artifact is a row of its own, outside any thread: whoever holds its unguessable id, in the same tenant, may
//! fetch it. It goes with the thread whose call it was of, as far as that call has a record; one that was never told to anybody
//! expires like the others.

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

/// Something that was too long for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// What it is, such as `text/plain`.
    pub mime_type: String,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// Keeps something; `None` when the store does not answer.
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

/// Gets it back.
pub(crate) async fn fetch(
    store: &dyn Backend,
    tenant: &Tenant,
    id: &ArtifactId,
    now: Timestamp,
) -> Result<Option<Artifact>, StoreError> {
    // The row's id says what the bytes are, so one look at the partition tells all.
    let scan = Scan::new(Table::Artifacts, Scope::Partition(artifact_partition(tenant, id))).limit(1);
    let page = store.scan(scan, now).await?;
    let found = page.rows.into_iter().next();
    Ok(found.map(|(key, row)| Artifact { mime_type: key.id.into(), bytes: row.value.to_vec() }))
}

/// Takes away what these pieces point to.
pub(crate) async fn delete(
    store: &dyn Backend,
    tenant: &Tenant,
    pieces: &[Content],
    now: Timestamp,
) -> Result<(), StoreError> {
    for piece in pieces {
        let Content::Artifact { id, mime_type, .. } = piece else { continue };
        let (expect, durability) = (Expect::Any, Durability::KillSafe);
        let gone =
            Write { table: Table::Artifacts, id: SmolStr::new(mime_type), expect, change: Change::Remove, durability };
        store.commit(Batch::new(artifact_partition(tenant, id)).with(gone), now).await?;
    }
    Ok(())
}

fn artifact_partition(tenant: &Tenant, id: &ArtifactId) -> Partition {
    Partition { tenant: tenant.clone(), kind: PartitionKind::Artifact(id.clone()) }
}

//! Contract of partitions: every table can be used in every kind of partition, and rows of one are not visible in another.

use super::{NOW, expect_ok, value};
use crate::backend::{Backend, Batch, Durability, Expect, Partition, PartitionKind, RowKey, Scan, Scope, Table, Write};
use toolhub_types::{
    ids::{ArtifactId, CallId, IdempotencyKey, Tenant, ThreadId},
    timestamp::Timestamp,
    tool::ToolName,
};

fn partition_kinds() -> Vec<PartitionKind> {
    let tool = || ToolName::new("pay").expect("a valid name");
    vec![
        PartitionKind::Thread(ThreadId::new("t1").expect("a valid id")),
        PartitionKind::Call(CallId::mint(Timestamp::from_millis(1))),
        PartitionKind::Key(tool(), IdempotencyKey::new("a/b").expect("a valid key")),
        PartitionKind::Request("threads".into(), IdempotencyKey::new("a/b").expect("a valid key")),
        PartitionKind::Artifact(ArtifactId::mint()),
        PartitionKind::Tool(tool()),
        PartitionKind::Grants,
        PartitionKind::State("cart".into()),
        PartitionKind::Nodes,
        PartitionKind::Events,
        PartitionKind::Keys,
        PartitionKind::Audit,
        PartitionKind::Tools,
        PartitionKind::McpSessions,
        PartitionKind::Layouts,
        PartitionKind::Alerts,
    ]
}

pub(super) async fn every_table_in_every_place(store: &impl Backend) {
    let tenants = [Tenant::default(), Tenant::new("other").expect("a valid name")];
    let all = || tenants.iter().flat_map(|tenant| partition_kinds().into_iter().map(|kind| (tenant.clone(), kind)));
    let partitions: Vec<Partition> = all().map(|(tenant, kind)| Partition { tenant, kind }).collect();
    for (number, partition) in partitions.iter().enumerate() {
        let mut batch = Batch::new(partition.clone());
        for table in Table::ALL {
            let change = value(&format!("{table} {number}"), None);
            let (id, durability) = ("row".into(), Durability::KillSafe);
            batch.writes.push(Write { table, id, expect: Expect::Absent, change, durability });
        }
        expect_ok(store.commit(batch, NOW)).await;
    }
    for (number, partition) in partitions.iter().enumerate() {
        for table in Table::ALL {
            let key = RowKey { partition: partition.clone(), table, id: "row".into() };
            let row = expect_ok(store.load(std::slice::from_ref(&key), NOW)).await.pop().flatten();
            let row = row.unwrap_or_else(|| panic!("the row of {table} in {partition} is missing"));
            assert_eq!(&*row.value, format!("{table} {number}").as_bytes(), "{table} in {partition}");
            let page = expect_ok(store.scan(Scan::new(table, Scope::Partition(partition.clone())), NOW)).await;
            let found: Vec<&RowKey> = page.rows.iter().map(|(key, _)| key).collect();
            assert_eq!(found, [&key], "{partition} holds one row of {table}");
        }
    }
    for table in Table::ALL {
        let page = expect_ok(store.scan(Scan::new(table, Scope::Tenant(tenants[1].clone())), NOW)).await;
        assert_eq!(page.rows.len(), partition_kinds().len(), "a tenant sees its own rows of {table}");
        assert!(page.rows.iter().all(|(key, _)| key.partition.tenant == tenants[1]));
    }
}

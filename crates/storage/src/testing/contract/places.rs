//! Every sort of record can lie in every sort of place, and is found there and nowhere else.

use super::{NOW, answered, value};
use crate::backend::{Backend, Batch, Durability, Expect, Key, Partition, Place, Scan, Scope, Table, Write};
use toolhub_types::{
    ids::{ArtifactId, CallId, IdempotencyKey, Tenant, ThreadId},
    timestamp::Timestamp,
    tool::ToolName,
};

fn places() -> Vec<Place> {
    let tool = || ToolName::new("pay").expect("a good name");
    vec![
        Place::Thread(ThreadId::new("t1").expect("a good id")),
        Place::Call(CallId::mint(Timestamp::from_millis(1))),
        Place::Key(tool(), IdempotencyKey::new("a/b").expect("a good key")),
        Place::Request("threads".into(), IdempotencyKey::new("a/b").expect("a good key")),
        Place::Artifact(ArtifactId::mint()),
        Place::Tool(tool()),
        Place::Grants,
        Place::State("cart".into()),
        Place::Nodes,
        Place::Events,
        Place::Keys,
        Place::Audit,
        Place::Tools,
    ]
}

pub(super) async fn every_table_in_every_place(store: &impl Backend) {
    let tenants = [Tenant::default(), Tenant::new("other").expect("a good name")];
    let all = || tenants.iter().flat_map(|tenant| places().into_iter().map(|place| (tenant.clone(), place)));
    let partitions: Vec<Partition> = all().map(|(tenant, place)| Partition { tenant, place }).collect();
    for (number, partition) in partitions.iter().enumerate() {
        let mut batch = Batch::on(partition.clone());
        for table in Table::ALL {
            let change = value(&format!("{table} {number}"), None);
            let (id, durability) = ("row".into(), Durability::KillSafe);
            batch.writes.push(Write { table, id, expect: Expect::Absent, change, durability });
        }
        answered(store.commit(batch, NOW)).await;
    }
    for (number, partition) in partitions.iter().enumerate() {
        for table in Table::ALL {
            let key = Key { partition: partition.clone(), table, id: "row".into() };
            let row = answered(store.load(std::slice::from_ref(&key), NOW)).await.pop().flatten();
            let row = row.unwrap_or_else(|| panic!("a row of {table} in {partition} is lost"));
            assert_eq!(&*row.value, format!("{table} {number}").as_bytes(), "{table} in {partition}");
            let page = answered(store.scan(Scan::of(table, Scope::Partition(partition.clone())), NOW)).await;
            let found: Vec<&Key> = page.rows.iter().map(|(key, _)| key).collect();
            assert_eq!(found, [&key], "{partition} holds one row of {table}");
        }
    }
    for table in Table::ALL {
        let page = answered(store.scan(Scan::of(table, Scope::Tenant(tenants[1].clone())), NOW)).await;
        assert_eq!(page.rows.len(), places().len(), "a tenant sees its own rows of {table}");
        assert!(page.rows.iter().all(|(key, _)| key.partition.tenant == tenants[1]));
    }
}

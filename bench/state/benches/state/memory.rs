//! How many bytes an entry takes, at a million small ones and a hundred thousand larger ones.
//!
//! In: the name of a way to keep entries. Out: the bytes it asked the allocator for, and those the process took from the
//! system, for each entry. The second is more: every allocation has a header and is rounded up.

use std::process::Command;

use dashmap::DashMap;
use serde_json::{Value, json};
use toolhub::{
    StateKind,
    backend::{Backend, Batch, Change, Durability, Expect, Memory, Partition, Table, Write},
    clock::Timestamp,
    ids::Tenant,
    prelude::ToolHub,
};

use crate::{
    alloc::allocated_bytes,
    document::{context, object_of_size, thread},
    measure::runtime,
};

/// How many entries of how many bytes.
pub(crate) const SIZES: [(usize, usize); 2] = [(1_000_000, 64), (100_000, 1024)];

/// What keeps the entries. To add another one: a name here, an arm in `fill`.
pub(crate) const STORAGE_KINDS: [&str; 4] =
    ["map of text", "map of Value", "Memory::commit", "StateManager::set_state"];

/// What one entry takes.
pub(crate) struct EntrySize {
    pub(crate) storage: &'static str,
    pub(crate) size: usize,
    pub(crate) allocated: f64,
    pub(crate) resident: f64,
}

/// Every way with every size, each in a process of its own.
pub(crate) fn measure_all() -> Vec<EntrySize> {
    let pairs = SIZES.into_iter().flat_map(|(_, size)| STORAGE_KINDS.map(|way| (way, size)));
    pairs.map(|(way, size)| measure_in_subprocess(way, size)).collect()
}

fn measure_in_subprocess(way: &'static str, size: usize) -> EntrySize {
    let myself = std::env::current_exe().unwrap();
    let output = Command::new(myself).args(["bytes", &format!("{way}/{size}")]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    println!("{line}");
    let number = |field: &str| line[field].as_f64().unwrap();
    EntrySize { storage: way, size, allocated: number("bytes_asked_for"), resident: number("bytes_resident") }
}

/// Measures one of them here.
pub(crate) fn measure_and_print(what: &str) {
    let (way, size) = what.split_once('/').unwrap();
    let size: usize = size.parse().unwrap();
    let (entries, _) = SIZES.into_iter().find(|(_, bytes)| *bytes == size).unwrap();
    // A few first: the program's own pages and what the allocator begins with are no part of an entry.
    drop(fill(way, 100, size));
    let (asked, resident) = (allocated_bytes(), resident_bytes());
    let kept = fill(way, entries, size);
    let each = |bytes: f64| (bytes / entries as f64).round();
    let asked = each((allocated_bytes() - asked) as f64);
    let resident = each(resident_bytes() - resident);
    drop(kept);
    println!(
        "{}",
        json!({"name": way, "entries": entries, "size": size, "bytes_asked_for": asked, "bytes_resident": resident})
    );
}

fn fill(way: &str, entries: usize, size: usize) -> Box<dyn std::any::Any> {
    match way {
        "map of text" => Box::new(map_of_text(entries, size)),
        "map of Value" => Box::new(map_of_values(entries, size)),
        "Memory::commit" => Box::new(fill_memory_backend(entries, size)),
        "StateManager::set_state" => Box::new(fill_state_manager(entries, size)),
        other => panic!("`{other}` keeps nothing"),
    }
}

/// What a plain program would do: the id, the text and a version in a sharded map.
fn map_of_text(entries: usize, size: usize) -> DashMap<String, (String, u64)> {
    let (map, text) = (DashMap::new(), object_of_size(size).to_string());
    for number in 0..entries {
        map.insert(context(number).to_string(), (text.as_str().into(), 1));
    }
    map
}

/// The same with the documents as JSON values.
fn map_of_values(entries: usize, size: usize) -> DashMap<String, (Value, u64)> {
    let (map, value) = (DashMap::new(), object_of_size(size));
    for number in 0..entries {
        map.insert(context(number).to_string(), (value.clone(), 1));
    }
    map
}

/// Our store, with one row for each context, each in a thread of its own: nothing but the state.
fn fill_memory_backend(entries: usize, size: usize) -> Memory {
    let (store, text) = (Memory::new(), object_of_size(size).to_string());
    let now = Timestamp::from_millis(1_704_110_400_000);
    runtime().block_on(async {
        for number in 0..entries {
            let change = Change::Put { value: text.as_bytes().into(), schema: 1, expires: None };
            let write = Write {
                table: Table::State,
                id: "cart/business".into(),
                expect: Expect::Absent,
                change,
                durability: Durability::PowerSafe,
            };
            let partition = Partition::for_thread(Tenant::default(), thread(number));
            store.commit(Batch::new(partition).with(write), now).await.unwrap();
        }
    });
    store
}

/// The whole of it: the state, its snapshot and its entry in the history.
fn fill_state_manager(entries: usize, size: usize) -> (tokio::runtime::Runtime, ToolHub) {
    let (runtime, value) = (runtime(), object_of_size(size));
    let hub = runtime.block_on(async {
        let hub = ToolHub::builder().build().await.unwrap();
        let (state, tenant) = (hub.state(), Tenant::default());
        for number in 0..entries {
            let context = context(number);
            state.set_state(&tenant, &context, StateKind::Business, value.clone(), None).await.unwrap();
        }
        hub
    });
    (runtime, hub)
}

/// What the process has of the machine's memory, as Linux tells it; nothing elsewhere.
fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok()).map_or(0.0, |kib| kib * 1024.0)
}

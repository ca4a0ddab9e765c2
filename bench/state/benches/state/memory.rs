//! Memory per entry, with a million small entries and a hundred thousand larger ones.
//!
//! In: the name of a kind of storage. Out: allocated bytes and resident bytes per entry. Resident memory is larger, because the
//! allocator adds headers and rounds sizes up.

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

/// Numbers and sizes of entries.
pub(crate) const SIZES: [(usize, usize); 2] = [(1_000_000, 64), (100_000, 1024)];

/// The kinds of storage. To add one: a name here, and an arm in `fill`.
pub(crate) const STORAGE_KINDS: [&str; 4] =
    ["map of text", "map of Value", "Memory::commit", "StateManager::set_state"];

/// The memory of one entry.
pub(crate) struct EntrySize {
    pub(crate) storage: &'static str,
    pub(crate) size: usize,
    pub(crate) allocated: f64,
    pub(crate) resident: f64,
}

/// Measures every kind of storage with every size, each in its own subprocess.
pub(crate) fn measure_all() -> Vec<EntrySize> {
    let cases = SIZES.into_iter().flat_map(|(_, size)| STORAGE_KINDS.map(|storage| (storage, size)));
    cases.map(|(storage, size)| measure_in_subprocess(storage, size)).collect()
}

fn measure_in_subprocess(storage: &'static str, size: usize) -> EntrySize {
    let this_program = std::env::current_exe().unwrap();
    let output = Command::new(this_program).args(["bytes", &format!("{storage}/{size}")]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    println!("{line}");
    let number = |field: &str| line[field].as_f64().unwrap();
    EntrySize { storage, size, allocated: number("bytes_allocated"), resident: number("bytes_resident") }
}

/// Measures one case in this process.
pub(crate) fn measure_and_print(case: &str) {
    let (storage, size) = case.split_once('/').unwrap();
    let size: usize = size.parse().unwrap();
    let (entries, _) = SIZES.into_iter().find(|(_, bytes)| *bytes == size).unwrap();
    // Warm-up: pages of the program and the initial memory of the allocator are not part of an entry.
    drop(fill(storage, 100, size));
    let (allocated_before, resident_before) = (allocated_bytes(), resident_bytes());
    let filled = fill(storage, entries, size);
    let per_entry = |bytes: f64| (bytes / entries as f64).round();
    let allocated = per_entry((allocated_bytes() - allocated_before) as f64);
    let resident = per_entry(resident_bytes() - resident_before);
    drop(filled);
    println!(
        "{}",
        json!({"name": storage, "entries": entries, "size": size, "bytes_allocated": allocated, "bytes_resident": resident})
    );
}

fn fill(storage: &str, entries: usize, size: usize) -> Box<dyn std::any::Any> {
    match storage {
        "map of text" => Box::new(map_of_text(entries, size)),
        "map of Value" => Box::new(map_of_values(entries, size)),
        "Memory::commit" => Box::new(fill_memory_backend(entries, size)),
        "StateManager::set_state" => Box::new(fill_state_manager(entries, size)),
        other => panic!("unknown kind of storage `{other}`"),
    }
}

/// The simplest implementation: id, text and version in a sharded map.
fn map_of_text(entries: usize, size: usize) -> DashMap<String, (String, u64)> {
    let (map, text) = (DashMap::new(), object_of_size(size).to_string());
    for number in 0..entries {
        map.insert(context(number).to_string(), (text.as_str().into(), 1));
    }
    map
}

/// The same, with the documents as JSON values.
fn map_of_values(entries: usize, size: usize) -> DashMap<String, (Value, u64)> {
    let (map, value) = (DashMap::new(), object_of_size(size));
    for number in 0..entries {
        map.insert(context(number).to_string(), (value.clone(), 1));
    }
    map
}

/// The memory backend, with one row per context, each in its own thread: only the state.
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

/// The state manager: the state, its snapshot and its history entry.
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

/// The resident memory of the process on Linux; 0 on other systems.
fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok()).map_or(0.0, |kib| kib * 1024.0)
}

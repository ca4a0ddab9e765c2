//! A million contexts of 1 KiB: time to open the store, and load latency while expired rows are swept.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use toolhub::{
    Sqlite,
    backend::{Backend, Change, Durability, Expect},
    sqlite::Options,
};

use crate::{
    rates::{NOW, key, partition, put_batch},
    verdict,
};

const CONTEXTS: usize = 1_000_000;
/// One in this many contexts has expired.
const EXPIRED_ONE_IN: usize = 5;

pub(crate) async fn measure_all(folder: &Path) {
    let path = folder.join("many.db");
    let store = Arc::new(Sqlite::open(&path, Options::default()).unwrap());
    let value = vec![b'x'; 1024];
    let start = Instant::now();
    let writers: Vec<_> = (0..64)
        .map(|writer| {
            let (store, value) = (store.clone(), value.clone());
            tokio::spawn(async move {
                for n in (writer..CONTEXTS).step_by(64) {
                    let thread = partition(&format!("thread-{n:07}"));
                    let mut batch = put_batch(thread, value.as_slice().into(), Expect::Any, Durability::KillSafe);
                    if let Change::Put { expires, .. } = &mut batch.writes[0].change {
                        *expires = n.is_multiple_of(EXPIRED_ONE_IN).then_some(NOW);
                    }
                    store.commit(batch, NOW).await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    println!("\n{:<44} {:>10.1} s", "writing a million contexts of 1 KiB", start.elapsed().as_secs_f64());
    drop(Arc::try_unwrap(store).unwrap());

    let start = Instant::now();
    let store = Arc::new(Sqlite::open(&path, Options::default()).unwrap());
    store.load(&[key(partition("thread-0000001"))], NOW).await.unwrap();
    let open_time = start.elapsed();
    let target = Duration::from_secs(5);
    println!(
        "{:<44} {:>10.3} s  ≤ 5  {}",
        "open and first load",
        open_time.as_secs_f64(),
        verdict(open_time <= target)
    );

    let swept = Arc::new(AtomicBool::new(false));
    let sweeper = tokio::spawn({
        let (store, swept) = (store.clone(), swept.clone());
        async move {
            let (start, mut removed) = (Instant::now(), 0);
            loop {
                let batch = store.sweep(1000, NOW).await.unwrap();
                removed += batch;
                if batch < 1000 {
                    swept.store(true, Ordering::Relaxed);
                    return (removed, start.elapsed());
                }
            }
        }
    });
    let mut times = Vec::new();
    let mut n = 1_usize;
    while !swept.load(Ordering::Relaxed) {
        n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = key(partition(&format!("thread-{:07}", (n >> 33) % CONTEXTS)));
        let start = Instant::now();
        store.load(&[key], NOW).await.unwrap();
        times.push(start.elapsed());
        tokio::task::yield_now().await;
    }
    let (removed, sweep_time) = sweeper.await.unwrap();
    times.sort();
    let p99 = times[times.len() * 99 / 100];
    println!("{:<44} {:>10.1} s", format!("sweeping {removed} expired contexts"), sweep_time.as_secs_f64());
    let name = format!("p99 of {} loads during the sweep", times.len());
    println!("{name:<44} {:>10.3} ms  ≤ 10  {}", p99.as_secs_f64() * 1000.0, verdict(p99 <= Duration::from_millis(10)));
}

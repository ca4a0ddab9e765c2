//! Bare SQLite: one writer thread with group commit, and connections for reading. No checksums, row metadata, expiry, change
//! notification or repair.

use std::{
    path::Path,
    sync::{
        Mutex,
        mpsc::{self, Sender},
    },
};

use rusqlite::Connection;
use tokio::sync::oneshot;

pub(crate) struct BaselineStore {
    jobs: Sender<Job>,
    readers: Vec<Mutex<Connection>>,
}

struct Job {
    key: String,
    /// The expected version.
    version: i64,
    value: Vec<u8>,
    reply: oneshot::Sender<bool>,
}

const UPDATE: &str = "UPDATE rows SET version = version + 1, value = ?1 WHERE partition = ?2 AND tab = 'state' AND id = 'cart/business' AND version = ?3";
const SELECT: &str = "SELECT version, value FROM rows WHERE partition = ?1 AND tab = 'state' AND id = 'cart/business'";

impl BaselineStore {
    pub(crate) fn open(path: &Path, keys: &[String], value: &[u8], full: bool) -> Self {
        let mut writer = Connection::open(path).unwrap();
        writer
            .execute_batch(
                "PRAGMA journal_mode = WAL;
                 PRAGMA wal_autocheckpoint = 4000;
                 CREATE TABLE rows (partition TEXT, tab TEXT, id TEXT, version INTEGER, value BLOB);
                 CREATE UNIQUE INDEX by_name ON rows (partition, tab, id);",
            )
            .unwrap();
        let transaction = writer.transaction().unwrap();
        for key in keys {
            transaction.execute("INSERT INTO rows VALUES (?1, 'state', 'cart/business', 1, ?2)", (key, value)).unwrap();
        }
        transaction.commit().unwrap();
        writer.execute_batch(if full { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" }).unwrap();
        let readers = (0..2).map(|_| Mutex::new(Connection::open(path).unwrap())).collect();
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            while let Ok(first) = queue.recv() {
                let mut group = vec![first];
                group.extend(queue.try_iter().take(511));
                writer.prepare_cached("BEGIN IMMEDIATE").unwrap().execute(()).unwrap();
                let mut update = writer.prepare_cached(UPDATE).unwrap();
                let applied = group.iter().map(|job| update.execute((&job.value, &job.key, job.version)).unwrap() == 1);
                let applied: Vec<bool> = applied.collect();
                writer.prepare_cached("COMMIT").unwrap().execute(()).unwrap();
                for (job, applied) in group.into_iter().zip(applied) {
                    let _ = job.reply.send(applied);
                }
            }
        });
        Self { jobs, readers }
    }

    pub(crate) fn load(&self, key: &str) -> (i64, Vec<u8>) {
        let free = self.readers.iter().find_map(|reader| reader.try_lock().ok());
        let reader = free.unwrap_or_else(|| self.readers[0].lock().unwrap());
        let mut select = reader.prepare_cached(SELECT).unwrap();
        select.query_row([key], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    }

    pub(crate) async fn update(&self, key: &str) {
        let (version, value) = self.load(key);
        let (reply, applied) = oneshot::channel();
        self.jobs.send(Job { key: key.into(), version, value, reply }).unwrap();
        assert!(applied.await.unwrap());
    }
}

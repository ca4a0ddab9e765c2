//! Checks the file of a store once after it was opened.
//!
//! In: the file. Out: in `StoreFile`, what is damaged. A damaged page can hide rows, so that a used idempotency key looks free. A
//! small file is checked before the store is used, a large one in a thread of its own meanwhile.

use std::{
    fs, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Builder, JoinHandle},
};

use rusqlite::Connection;

use super::{backup::check_integrity, connection, error::is_damage, store_file::StoreFile};

/// Larger files are checked in a thread of their own, so that the start takes no longer than some tens of milliseconds.
const MAX_INLINE_BYTES: u64 = 4 * 1024 * 1024;
/// Number of SQLite instructions between two looks at the stop flag.
const STOP_CHECK_INTERVAL: i32 = 10_000;

/// A check that may still run. Dropping it stops the check.
pub(super) struct IntegrityCheck {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl IntegrityCheck {
    pub(super) fn start(file: &Arc<StoreFile>, connection: &Connection) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        if fs::metadata(file.path())?.len() <= MAX_INLINE_BYTES {
            check(&stop, file, connection);
            return Ok(Self { stop, thread: None });
        }
        let (file, stop_flag) = (file.clone(), stop.clone());
        let run = move || match connection::open_reader(file.path()) {
            Ok(mut connection) => {
                let stop_handler = stop_flag.clone();
                let handler = move || stop_handler.load(Ordering::Relaxed);
                if connection.progress_handler(STOP_CHECK_INTERVAL, Some(handler)).is_ok() {
                    check(&stop_flag, &file, &connection);
                }
            }
            Err(error) => tracing::warn!(%error, store = %file.path().display(), "the store's file was not checked"),
        };
        let thread = Builder::new().name("toolhub-check".into()).spawn(run)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    pub(super) fn wait(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for IntegrityCheck {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wait();
    }
}

/// Records in the file what the check finds, unless it was stopped.
fn check(stop: &AtomicBool, file: &StoreFile, connection: &Connection) {
    match check_integrity(connection) {
        Ok(Ok(())) => {}
        _ if stop.load(Ordering::Relaxed) => {}
        Ok(Err(problem)) => file.set_damaged(problem),
        Err(error) if is_damage(&error) => file.set_damaged(error.to_string()),
        Err(error) => tracing::warn!(%error, store = %file.path().display(), "the store's file was not checked"),
    }
}

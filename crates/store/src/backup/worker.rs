//! Backup thread: runs requested and scheduled backups and applies the retention.
//!
//! In: requests and the options. Out: backups in the folder. Errors are logged, available as `last_error`, and retried.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    time::Duration,
};

use tokio::sync::oneshot;
use toolhub_storage::clock::{Clock, SystemClock, Timestamp};

use crate::worker_thread::{Work, WorkerThread};

use super::{Backup, BackupError, BackupOptions, BackupSource, remove_if_exists, with_suffix};

/// Retry delay after a failure, unless the interval is shorter.
const RETRY_INTERVAL: Duration = Duration::from_secs(300);
/// Maximum time between checks: the wall clock may jump.
const POLL_INTERVAL: Duration = Duration::from_secs(600);

/// Handle of the backup thread. Dropping it cancels a running backup and joins the thread.
pub(crate) struct BackupWorker {
    requests: Sender<Request>,
    stop: Arc<AtomicBool>,
    last_error: Arc<Mutex<Option<String>>>,
    folder: Option<PathBuf>,
    _thread: WorkerThread,
}

struct Request {
    destination: PathBuf,
    reply: oneshot::Sender<Result<Backup, BackupError>>,
}

impl BackupWorker {
    pub(crate) fn spawn(source: impl BackupSource, settings: Option<BackupOptions>) -> io::Result<Self> {
        // Unbounded, but each waiting caller has only one request.
        let (requests, receiver) = mpsc::channel();
        let (stop, last_error) = (Arc::<AtomicBool>::default(), Arc::<Mutex<_>>::default());
        let folder = settings.as_ref().map(|settings| settings.folder.clone());
        let worker = Worker {
            source,
            requests: receiver,
            settings,
            next_check_delay: Duration::ZERO,
            stop: stop.clone(),
            last_error: last_error.clone(),
        };
        let thread = WorkerThread::spawn("toolhub-backup", worker)?;
        Ok(Self { requests, stop, last_error, folder, _thread: thread })
    }

    pub(crate) async fn create_backup(&self, destination: &Path) -> Result<Backup, BackupError> {
        let (reply, result) = oneshot::channel();
        let request = Request { destination: destination.to_owned(), reply };
        self.requests.send(request).map_err(|_| BackupError::Closed)?;
        // The reply channel closes without a reply if the thread panicked while it made the backup.
        result.await.unwrap_or(Err(BackupError::Panicked))
    }

    /// The backups in the configured folder, latest first.
    pub(crate) fn list(&self) -> io::Result<Vec<Backup>> {
        self.folder.as_deref().map_or_else(|| Ok(Vec::new()), Backup::list_in)
    }

    /// The error of the last scheduled backup, if it failed.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for BackupWorker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Worker<M> {
    source: M,
    requests: Receiver<Request>,
    settings: Option<BackupOptions>,
    next_check_delay: Duration,
    stop: Arc<AtomicBool>,
    last_error: Arc<Mutex<Option<String>>>,
}

impl<M: BackupSource> Work for Worker<M> {
    fn run(&mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            let request = match &self.settings {
                None => self.requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(_) => self.requests.recv_timeout(self.next_check_delay.min(POLL_INTERVAL)),
            };
            match (request, &self.settings) {
                (Ok(Request { destination, reply }), _) => {
                    let _ = reply.send(self.source.create_backup(&destination, &self.stop));
                }
                (Err(RecvTimeoutError::Timeout), Some(settings)) => self.next_check_delay = self.run_if_due(settings),
                _ => return,
            }
        }
    }

    fn recover(&mut self) {
        tracing::error!(store = %self.source.store_path().display(), "backup thread panicked; restarting");
        if let Some(settings) = &self.settings {
            self.next_check_delay = retry_interval(settings);
            self.set_last_error(Some(&BackupError::Panicked));
        }
    }
}

impl<M: BackupSource> Worker<M> {
    fn set_last_error(&self, error: Option<&BackupError>) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = error.map(ToString::to_string);
    }

    /// Creates a backup if one is due, and removes old ones. Returns the time until the next check.
    fn run_if_due(&self, settings: &BackupOptions) -> Duration {
        let due = self.time_until_due(settings);
        if let Ok(remaining) = due
            && !remaining.is_zero()
        {
            return remaining;
        }
        let result = due.and_then(|_| {
            self.remove_partial(&settings.folder).map_err(BackupError::io(&settings.folder))?;
            let destination = settings.folder.join(self.new_backup_name(SystemClock.now()));
            let backup = self.source.create_backup(&destination, &self.stop)?;
            tracing::info!(backup = %backup.path.display(), bytes = backup.bytes, "backup created");
            self.remove_old(settings, SystemClock.now()).map_err(BackupError::io(&settings.folder))
        });
        let error = result.err().filter(|error| !matches!(error, BackupError::Closed));
        let next = if error.is_some() { retry_interval(settings) } else { settings.interval };
        if let Some(error) = &error {
            tracing::warn!(store = %self.source.store_path().display(), %error, "scheduled backup failed; will retry");
        }
        self.set_last_error(error.as_ref());
        next
    }

    /// The time until the next backup is due: one interval after the latest in the folder, or zero.
    fn time_until_due(&self, settings: &BackupOptions) -> Result<Duration, BackupError> {
        let io_error = BackupError::io(&settings.folder);
        fs::create_dir_all(&settings.folder).map_err(&io_error)?;
        let latest = Backup::list_in(&settings.folder).map_err(&io_error)?.into_iter().next();
        let now = SystemClock.now();
        Ok(latest.map_or(Duration::ZERO, |latest| {
            // A backup dated in the future does not delay the next one.
            let age = if latest.made_at > now { Duration::MAX } else { now.since(latest.made_at) };
            settings.interval.saturating_sub(age)
        }))
    }

    /// Removes partial backups of crashed processes: they are as large as the store and useless.
    fn remove_partial(&self, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Some((backup_name, suffix)) = self.split_backup_name(&name) else { continue };
            if is_leftover(folder, backup_name, suffix) {
                remove_if_exists(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Splits a file name into the name of a backup of this store and the suffix after it.
    fn split_backup_name<'n>(&self, name: &'n str) -> Option<(&'n str, &'n str)> {
        let stem = self.source.store_path().file_stem()?.to_str()?;
        let (timestamp, rest) = name.strip_prefix(stem)?.strip_prefix('-')?.split_once('Z')?;
        let (day, time) = timestamp.split_once('T')?;
        format!("{day}T{}Z", time.replace('-', ":")).parse::<Timestamp>().ok()?;
        let suffix = rest.strip_prefix(M::SUFFIX)?;
        Some((&name[..name.len() - suffix.len()], suffix))
    }

    /// Removes the backups beyond the retention, except for the latest intact one.
    fn remove_old(&self, settings: &BackupOptions, now: Timestamp) -> io::Result<()> {
        let mut newer_is_intact = false;
        let mut newer = Vec::new();
        for backup in Backup::list_in(&settings.folder)? {
            if now.since(backup.made_at) <= settings.retention {
                newer.push(backup);
                continue;
            }
            // Verification reads the whole backup, so it runs only if there is something to remove.
            newer_is_intact = newer_is_intact || newer.drain(..).any(|newer| self.source.is_intact(&newer));
            if newer_is_intact {
                // The backup first: a manifest without a backup is ignored, but a backup without a manifest would stay forever.
                remove_if_exists(&backup.path)?;
                remove_if_exists(&with_suffix(&backup.path, ".json"))?;
            } else {
                newer.push(backup);
            }
        }
        Ok(())
    }

    /// A unique backup name: it contains the timestamp.
    fn new_backup_name(&self, now: Timestamp) -> PathBuf {
        let stem = self.source.store_path().file_stem().unwrap_or_default();
        with_suffix(Path::new(stem), &format!("-{}{}", now.to_string().replace(':', "-"), M::SUFFIX))
    }
}

fn retry_interval(settings: &BackupOptions) -> Duration {
    settings.interval.min(RETRY_INTERVAL)
}

/// Whether the file `backup_name` + `suffix` is a leftover of a crashed backup: a temporary file, or a manifest without backup.
fn is_leftover(folder: &Path, backup_name: &str, suffix: &str) -> bool {
    let is_partial = ["", "-wal", "-shm", "-journal"].iter().any(|end| suffix.strip_prefix(".half") == Some(end));
    is_partial || suffix == ".json.half" || (suffix == ".json" && !folder.join(backup_name).exists())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use toolhub_testkit::TempFolder;

    use super::*;

    /// A source whose first backups panic.
    struct PanickingSource {
        panics_left: AtomicUsize,
    }

    fn damaged() -> BackupError {
        BackupError::Damaged("no backup in this test".into())
    }

    impl BackupSource for PanickingSource {
        const SUFFIX: &'static str = "";

        fn store_path(&self) -> &Path {
            Path::new("store")
        }

        fn create_backup(&self, _: &Path, _: &Arc<AtomicBool>) -> Result<Backup, BackupError> {
            let left = self.panics_left.load(Ordering::SeqCst);
            self.panics_left.store(left.saturating_sub(1), Ordering::SeqCst);
            assert!(left == 0, "simulated panic");
            Err(damaged())
        }

        fn is_intact(&self, _: &Backup) -> bool {
            false
        }
    }

    #[tokio::test]
    async fn a_backup_that_panics_is_reported_and_later_ones_are_made() {
        let worker = BackupWorker::spawn(PanickingSource { panics_left: 1.into() }, None).unwrap();
        assert!(matches!(worker.create_backup(Path::new("a")).await, Err(BackupError::Panicked)));
        assert!(matches!(worker.create_backup(Path::new("a")).await, Err(BackupError::Damaged(_))));
    }

    #[tokio::test]
    async fn a_scheduled_backup_that_panics_is_repeated() {
        let folder = TempFolder::in_memory();
        let settings = |interval| Some(BackupOptions { interval, ..BackupOptions::new(folder.path()) });
        let wait_for_error = async |worker: &BackupWorker, error: BackupError| {
            while worker.last_error() != Some(error.to_string()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let hour = settings(Duration::from_secs(3600));
        let worker = BackupWorker::spawn(PanickingSource { panics_left: 1.into() }, hour).unwrap();
        wait_for_error(&worker, BackupError::Panicked).await;
        let soon = settings(Duration::from_millis(1));
        let worker = BackupWorker::spawn(PanickingSource { panics_left: 2.into() }, soon).unwrap();
        wait_for_error(&worker, damaged()).await;
    }
}

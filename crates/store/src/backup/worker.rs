//! The thread that makes backups: those it is asked for, and those that are due.
//!
//! In: requests, and the settings. Out: files in the folder, old ones removed from it. What goes wrong is told to
//! `tracing`, kept to be asked for, and tried again.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::sync::oneshot;
use toolhub_storage::clock::{Clock, SystemClock, Timestamp};

use super::{Backup, BackupError, BackupOptions, BackupSource, remove_if_exists, with_suffix};

/// After a failure it is tried again this soon, or after the interval if that is shorter.
const RETRY_INTERVAL: Duration = Duration::from_secs(300);
/// Clocks jump, so what is due is looked at now and then.
const POLL_INTERVAL: Duration = Duration::from_secs(600);

/// The way to the thread. Dropped, it ends what the thread is doing and waits for that.
pub(crate) struct BackupWorker {
    requests: Option<Sender<Request>>,
    stop: Arc<AtomicBool>,
    last_error: Arc<Mutex<Option<String>>>,
    folder: Option<PathBuf>,
    thread: Option<JoinHandle<()>>,
}

struct Request {
    destination: PathBuf,
    reply: oneshot::Sender<Result<Backup, BackupError>>,
}

impl BackupWorker {
    pub(crate) fn spawn(maker: impl BackupSource, settings: Option<BackupOptions>) -> io::Result<Self> {
        // One request for each caller that waits.
        let (requests, waiting) = mpsc::channel();
        let (stop, trouble) = (Arc::<AtomicBool>::default(), Arc::<Mutex<_>>::default());
        let folder = settings.as_ref().map(|settings| settings.folder.clone());
        let desk =
            Worker { source: maker, requests: waiting, settings, stop: stop.clone(), last_error: trouble.clone() };
        let thread = std::thread::Builder::new().name("toolhub-backup".into()).spawn(move || desk.run())?;
        Ok(Self { requests: Some(requests), stop, last_error: trouble, folder, thread: Some(thread) })
    }

    pub(crate) async fn create_backup(&self, into: &Path) -> Result<Backup, BackupError> {
        let (reply, answer) = oneshot::channel();
        let request = Request { destination: into.to_owned(), reply };
        self.requests.as_ref().and_then(|requests| requests.send(request).ok()).ok_or(BackupError::Closed)?;
        answer.await.unwrap_or(Err(BackupError::Closed))
    }

    /// Those in the folder of the settings, the latest first.
    pub(crate) fn list(&self) -> io::Result<Vec<Backup>> {
        self.folder.as_deref().map_or_else(|| Ok(Vec::new()), Backup::list_in)
    }

    /// Why the last one that was due was not made.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for BackupWorker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker<M> {
    source: M,
    requests: Receiver<Request>,
    settings: Option<BackupOptions>,
    stop: Arc<AtomicBool>,
    last_error: Arc<Mutex<Option<String>>>,
}

impl<M: BackupSource> Worker<M> {
    fn run(self) {
        let mut wait = Duration::ZERO;
        while !self.stop.load(Ordering::Relaxed) {
            let request = match &self.settings {
                None => self.requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(_) => self.requests.recv_timeout(wait.min(POLL_INTERVAL)),
            };
            match (request, &self.settings) {
                (Ok(Request { destination: into, reply }), _) => {
                    let _ = reply.send(self.source.create_backup(&into, &self.stop));
                }
                (Err(RecvTimeoutError::Timeout), Some(settings)) => wait = self.run_if_due(settings),
                _ => return,
            }
        }
    }

    /// Makes a backup if one is due, and removes old ones. Answers when to look again.
    fn run_if_due(&self, settings: &BackupOptions) -> Duration {
        let due = self.time_until_due(settings);
        if let Ok(left) = due
            && !left.is_zero()
        {
            return left;
        }
        let made = due.and_then(|_| {
            self.remove_partial(&settings.folder).map_err(BackupError::io(&settings.folder))?;
            let into = settings.folder.join(self.new_backup_name(SystemClock.now()));
            let made = self.source.create_backup(&into, &self.stop)?;
            tracing::info!(backup = %made.path.display(), bytes = made.bytes, "a backup is made");
            self.remove_old(settings, SystemClock.now()).map_err(BackupError::io(&settings.folder))
        });
        let trouble = made.err().filter(|error| !matches!(error, BackupError::Closed));
        let next = if trouble.is_some() { settings.interval.min(RETRY_INTERVAL) } else { settings.interval };
        if let Some(error) = &trouble {
            tracing::warn!(store = %self.source.store_path().display(), %error, "the store made no backup of itself");
        }
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = trouble.map(|error| error.to_string());
        next
    }

    /// How long until the next is due: an interval after the latest in the folder, or at once.
    fn time_until_due(&self, settings: &BackupOptions) -> Result<Duration, BackupError> {
        let broken = BackupError::io(&settings.folder);
        fs::create_dir_all(&settings.folder).map_err(&broken)?;
        let latest = Backup::list_in(&settings.folder).map_err(&broken)?.into_iter().next();
        let now = SystemClock.now();
        Ok(latest.map_or(Duration::ZERO, |latest| {
            // One that claims to be of the future says nothing about when the next is due.
            let age = if latest.made_at > now { Duration::MAX } else { now.since(latest.made_at) };
            settings.interval.saturating_sub(age)
        }))
    }

    /// Removes what processes left that died while they made a backup: as long as the store, and of no use.
    fn remove_partial(&self, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Some((ours, behind)) = self.split_backup_name(&name) else { continue };
            if is_leftover(folder, ours, behind) {
                remove_if_exists(&entry.path())?;
            }
        }
        Ok(())
    }

    /// The name of a backup of ours, and what stands behind it.
    fn split_backup_name<'n>(&self, name: &'n str) -> Option<(&'n str, &'n str)> {
        let stem = self.source.store_path().file_stem()?.to_str()?;
        let (moment, behind) = name.strip_prefix(stem)?.strip_prefix('-')?.split_once('Z')?;
        let (day, time) = moment.split_once('T')?;
        format!("{day}T{}Z", time.replace('-', ":")).parse::<Timestamp>().ok()?;
        let behind = behind.strip_prefix(M::SUFFIX)?;
        Some((&name[..name.len() - behind.len()], behind))
    }

    /// Removes what is older than it may become, but for the latest that is still what it was.
    fn remove_old(&self, settings: &BackupOptions, now: Timestamp) -> io::Result<()> {
        let mut kept = false;
        let mut newer = Vec::new();
        for backup in Backup::list_in(&settings.folder)? {
            if now.since(backup.made_at) <= settings.retention {
                newer.push(backup);
                continue;
            }
            // It takes a reading to know, so it is not asked before there is something to remove.
            kept = kept || newer.drain(..).any(|newer| self.source.is_intact(&newer));
            if kept {
                // The backup first: a manifest without one is none, one without a manifest would stay for ever.
                remove_if_exists(&backup.path)?;
                remove_if_exists(&with_suffix(&backup.path, ".json"))?;
            } else {
                newer.push(backup);
            }
        }
        Ok(())
    }

    /// A name no other backup has: by the moment.
    fn new_backup_name(&self, now: Timestamp) -> PathBuf {
        let stem = self.source.store_path().file_stem().unwrap_or_default();
        with_suffix(Path::new(stem), &format!("-{}{}", now.to_string().replace(':', "-"), M::SUFFIX))
    }
}

/// Whether this is what is left of a backup with a name of ours (in `name`) that a process was making when it died, by what
/// stands behind that name.
fn is_leftover(folder: &Path, name: &str, behind: &str) -> bool {
    let half = ["", "-wal", "-shm", "-journal"].iter().any(|ending| behind.strip_prefix(".half") == Some(ending));
    half || behind == ".json.half" || (behind == ".json" && !folder.join(name).exists())
}

//! Reloads the config when its files change.
//!
//! Polls the content of the files once a second. File notifications differ between systems and miss replaced or mounted files, and
//! reading a few kilobytes is cheap.

use std::{path::PathBuf, sync::Arc, time::Duration};

use super::{daemon::Daemon, signals};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Polls until aborted.
pub(super) async fn reload_on_change(daemon: Arc<Daemon>) {
    let mut known = read_contents(&daemon.watched_files());
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let current = read_contents(&daemon.watched_files());
        // A missing file is probably being replaced.
        if current != known && current.iter().all(Option::is_some) {
            signals::reload(&daemon, "file changed").await;
            known = current;
        }
    }
}

fn read_contents(files: &[PathBuf]) -> Vec<Option<Vec<u8>>> {
    files.iter().map(|file| std::fs::read(file).ok()).collect()
}

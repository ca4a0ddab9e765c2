//! Reads the config again when its files change.
//!
//! Their content is looked at once a second: editors replace files, folders are mounted, and every system has another way to
//! tell of that; a file of a few kilobytes is cheaper to read than to be told about.

use std::{path::PathBuf, sync::Arc, time::Duration};

use super::{daemon::Daemon, signals};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Goes on for as long as it is let.
pub(super) async fn reload_on_change(daemon: Arc<Daemon>) {
    let mut seen = read_contents(&daemon.files());
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let now = read_contents(&daemon.files());
        // A file that is gone for the moment is being replaced.
        if now != seen && now.iter().all(Option::is_some) {
            signals::reload(&daemon, "a file changed").await;
            seen = now;
        }
    }
}

fn read_contents(files: &[PathBuf]) -> Vec<Option<Vec<u8>>> {
    files.iter().map(|file| std::fs::read(file).ok()).collect()
}

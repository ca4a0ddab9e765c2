//! Tells the hub when the last scheduled backup is too old, for alerts.
//!
//! In: the folder of the backups and their interval. Out: the condition `backup.old`, looked at once a minute. A new store gets the same
//! time for its first backup.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use tokio_util::sync::CancellationToken;
use toolhub::{ToolHub, alerts::Condition, clock::Timestamp, tasks};

use crate::config::Config;

const INTERVAL: Duration = Duration::from_secs(60);
/// Backups older than this many intervals are too old.
const MAX_INTERVALS: u32 = 2;

/// Watches the age of the backups until `stop` is cancelled.
pub(crate) fn watch(hub: &ToolHub, config: &Config, stop: CancellationToken) {
    let Some((folder, interval)) = config.store.scheduled_backups() else { return };
    let (hub, folder, started) = (hub.clone(), folder.to_owned(), hub.now());
    tasks::spawn("backup age", stop, move |stop| {
        let (hub, folder) = (hub.clone(), folder.clone());
        Box::pin(async move {
            loop {
                let newest = newest_file(&folder).unwrap_or(started);
                let age = hub.now().since(newest);
                let is_old = age > MAX_INTERVALS * interval;
                let reason = format!(
                    "the last backup is {} minutes old; one is due every {} minutes",
                    age.as_secs() / 60,
                    interval.as_secs() / 60
                );
                hub.report_condition(Condition::BackupOld, &hub.node_name(), is_old.then_some(reason.as_str()));
                if stop.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_none() {
                    return;
                }
            }
        })
    });
}

/// When the newest file of a folder was written; `None` if there is none.
fn newest_file(folder: &Path) -> Option<Timestamp> {
    let files = std::fs::read_dir(folder).ok()?;
    let newest = files.filter_map(|file| file.ok()?.metadata().ok()?.modified().ok()).max()?;
    let since_epoch = newest.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).ok()?))
}

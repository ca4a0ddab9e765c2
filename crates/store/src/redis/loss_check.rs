//! Looks for lost commits in buckets that this node does not commit to at the moment.
//!
//! A commit notices by itself that its bucket has a new epoch. A node without new commits would not learn of its losses.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};
use toolhub_storage::backend::StoreError;

use super::{
    acknowledged::Acknowledged,
    answer,
    epoch::{BucketState, Position, add_position},
    keys::{Bucket, Keys},
    requests::{Request, Requests},
    script::{CHECK_EPOCH, ScriptCall},
};

const INTERVAL: Duration = Duration::from_secs(2);
/// Buckets that are checked at the same time.
const CONCURRENCY: usize = 64;

/// Handle of the task. Dropping it ends the task.
pub(super) struct LossCheck(JoinHandle<()>);

impl Drop for LossCheck {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl LossCheck {
    /// Must be called inside a runtime.
    pub(super) fn spawn(requests: Arc<Requests>, keys: Keys, acknowledged: Arc<Acknowledged>) -> Self {
        Self(tokio::spawn(async move {
            let mut ticks = interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                // One by one, because the servers of a Cluster fail one by one.
                stream::iter(acknowledged.active_buckets())
                    .for_each_concurrent(CONCURRENCY, async |bucket| {
                        if let Err(error) = check(&requests, &keys, bucket, &acknowledged).await {
                            tracing::debug!(%error, "cannot check whether Redis has lost commits");
                        }
                    })
                    .await;
            }
        }))
    }
}

async fn check(
    requests: &Requests,
    keys: &Keys,
    bucket: Bucket,
    acknowledged: &Acknowledged,
) -> Result<(), StoreError> {
    let call = check_call(keys, bucket, acknowledged.last(bucket), false);
    let answer = requests.write_all(&[Request::Script(call)]).await?.pop().ok_or_else(answer::unexpected)?;
    acknowledged.learn(bucket, &BucketState::parse(answer)?);
    Ok(())
}

/// A call that returns the state of a bucket; with `create`, a bucket without epoch is new, and has lost nothing.
pub(super) fn check_call(keys: &Keys, bucket: Bucket, last: Option<Position>, create: bool) -> ScriptCall {
    let mut call = ScriptCall::new(&CHECK_EPOCH, vec![keys.meta(bucket)]);
    add_position(&mut call, last);
    call.arg(if create { "1" } else { "0" });
    call
}

//! What happens in one run, as it happens.
//!
//! In: the hub's news, from before the run began, and the run. Out: those that are about it. The last is its end.

use std::{sync::Arc, time::Duration};

use futures_util::stream;
use tokio::time::Instant;
use toolhub_core::{
    Stream,
    events::{Event, News, Subscription},
};

use crate::service::RunHandle;

/// How soon a run that fell silent is looked at: whoever drove it may have let go of it.
const LOOK: Duration = Duration::from_secs(1);

/// The events of a run until its end. Ends early if the process lets go of the run, or if its end was among events that were
/// missed: then `stream.reset` is the last.
pub fn events(news: Subscription, run: RunHandle) -> impl Stream<Item = Arc<Event>> + Send {
    stream::unfold(Some((news, run)), |following| async move {
        let (mut news, run) = following?;
        let mut look_at = Instant::now() + LOOK;
        loop {
            let heard = tokio::time::timeout_at(look_at, news.next()).await.ok();
            let about = heard.as_ref().is_some_and(|event| event.news.run() == Some(run.id()));
            // Others may talk all the time, and this run never again.
            if !about && Instant::now() >= look_at {
                look_at = Instant::now() + LOOK;
                if run.is_let_go() {
                    return None;
                }
            }
            let Some(event) = heard else { continue };
            match event.news {
                News::RunCompleted { .. } | News::RunFailed { .. } if about => return Some((event, None)),
                // Some were missed; the end may have been among them.
                News::StreamReset => {
                    let over = run.record().status.is_end();
                    return Some((event, (!over).then_some((news, run))));
                }
                _ if about => return Some((event, Some((news, run)))),
                _ => {}
            }
        }
    })
}

//! What happens in one run, as it happens.
//!
//! In: the hub's news, from before the run began, and the run. Out: those that are about it. The last is its end.

use std::{sync::Arc, time::Duration};

use futures_util::stream;
use toolhub_core::{
    Stream,
    events::{Event, News, Subscription},
};

use crate::service::RunHandle;

/// How soon a run that fell silent is looked at: whoever drove it may have let go of it.
const LOOK: Duration = Duration::from_secs(1);

/// The events of a run until its end. Ends early if the process lets go of the run.
pub fn events(news: Subscription, run: RunHandle) -> impl Stream<Item = Arc<Event>> + Send {
    stream::unfold(Some((news, run)), |following| async move {
        let (mut news, run) = following?;
        loop {
            let event = match tokio::time::timeout(LOOK, news.next()).await {
                Ok(event) => event,
                Err(_) if run.is_let_go() => return None,
                Err(_) => continue,
            };
            let about = event.news.run() == Some(run.id());
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

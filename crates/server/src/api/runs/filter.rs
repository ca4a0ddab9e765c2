//! Lists of runs by status.
//!
//! In: a list of all runs, page by page. Out: a page of those with a status. The store has no index of them, so a request looks at a
//! bounded number of runs, and the cursor goes on behind the last one that it looked at.

use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_agent::{RunRecord, RunStatus};

use crate::page::{self, Limit};

/// The number of runs after which a request looks at no further page.
const MAX_EXAMINED: usize = 1_000;

/// Which runs to list.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum RunFilter {
    /// Those that have not ended.
    Open,
    /// Those that ended with an answer.
    Completed,
    /// Those that failed.
    Failed,
    /// Those that were cancelled.
    Cancelled,
}

impl RunFilter {
    fn fits(self, status: RunStatus) -> bool {
        match self {
            Self::Open => !status.is_end(),
            Self::Completed => status == RunStatus::Completed,
            Self::Failed => status == RunStatus::Failed,
            Self::Cancelled => status == RunStatus::Cancelled,
        }
    }
}

/// A page of the runs that fit, and the position of the next page if there is one. `fetch` is that of [`page::fetch_page`].
pub(super) async fn fetch_filtered<P: Clone, E, F>(
    limit: Limit,
    filter: Option<RunFilter>,
    mut after: Option<P>,
    position: impl Fn(&RunRecord) -> P,
    fetch: impl Fn(usize, Option<P>) -> F,
) -> Result<(Vec<RunRecord>, Option<P>), E>
where
    F: Future<Output = Result<Vec<RunRecord>, E>>,
{
    let (mut runs, mut examined) = (Vec::new(), 0);
    loop {
        let (page, has_more) = page::fetch_page(limit, after.clone(), &position, &fetch).await?;
        examined += page.len();
        after = page.last().map(&position);
        runs.extend(page.into_iter().filter(|run| filter.is_none_or(|filter| filter.fits(run.status))));
        if runs.len() > limit.get() {
            runs.truncate(limit.get());
            let next = runs.last().map(&position);
            return Ok((runs, next));
        }
        if !has_more || runs.len() == limit.get() || examined >= MAX_EXAMINED {
            return Ok((runs, after.filter(|_| has_more)));
        }
    }
}

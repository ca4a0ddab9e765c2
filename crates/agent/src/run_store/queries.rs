//! Reading conversations and runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use toolhub_core::{
    backend::{Cursor, RowKey, RowVersion, Scan, Scope, StoreError, Table},
    clock::Timestamp,
    ids::{RunId, Tenant, ThreadKey},
};

use super::{
    ConversationHead, HEAD_ROW_ID, OPEN_RUN_ROW_ID, OpenRun, RunCheckout, RunStore, decode_row, message_row_id, row_key,
};
use crate::{
    message::Message,
    record::RunRecord,
    window::{SizedMessage, trim_point},
};

/// How many rows are read at once.
const PAGE_SIZE: usize = 100;

/// A message of a conversation, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KeptMessage {
    /// Its number in the conversation, from 1.
    pub seq: u64,
    /// The run it belongs to.
    pub run_id: RunId,
    /// When it was written down.
    pub at: Timestamp,
    /// About how many tokens the conversation has up to its end.
    #[serde(rename = "tokensSoFar")]
    pub tokens_so_far: u64,
    /// What was said.
    #[serde(flatten)]
    pub message: Message,
}

impl RunStore {
    /// The head of a conversation.
    pub(crate) async fn head(
        &self,
        thread_key: &ThreadKey,
        now: Timestamp,
    ) -> Result<Option<ConversationHead>, StoreError> {
        let key = row_key(thread_key, Table::Messages, HEAD_ROW_ID);
        let row = self.store.load(std::slice::from_ref(&key), now).await?.pop().flatten();
        row.map(|row| decode_row(&key, &row).map(|(head, _)| head)).transpose()
    }

    /// The open run of a thread, to go on with it.
    pub(crate) async fn checkout(
        &self,
        thread_key: &ThreadKey,
        now: Timestamp,
    ) -> Result<Option<RunCheckout>, StoreError> {
        let keys =
            [row_key(thread_key, Table::Messages, HEAD_ROW_ID), row_key(thread_key, Table::Runs, OPEN_RUN_ROW_ID)];
        let mut rows = self.store.load(&keys, now).await?.into_iter();
        let (head, open) = (rows.next().flatten(), rows.next().flatten());
        let Some(open) = open else { return Ok(None) };
        let (open, open_seen): (OpenRun, RowVersion) = decode_row(&keys[1], &open)?;
        let head: Option<(ConversationHead, RowVersion)> = head.map(|row| decode_row(&keys[0], &row)).transpose()?;
        let (head, head_seen) = head.map_or_else(Default::default, |(head, seen)| (head, Some(seen)));
        Ok(Some(RunCheckout {
            open_run: open,
            head,
            head_version: head_seen,
            open_version: open_seen,
            unconfirmed_stamps: Vec::new(),
        }))
    }

    /// The threads with an open run, whoever drives them.
    pub(crate) async fn threads_with_open_run(&self, now: Timestamp) -> Result<Vec<ThreadKey>, StoreError> {
        let mut scan = Scan::new(Table::Runs, Scope::All).prefix(Table::OPEN_RUN).limit(PAGE_SIZE);
        let mut found = Vec::new();
        loop {
            let page = self.store.scan(scan.clone(), now).await?;
            found.extend(page.rows.into_iter().filter_map(|(key, _)| {
                let thread = key.partition.thread()?.clone();
                Some(ThreadKey { tenant: key.partition.tenant, thread })
            }));
            match page.next {
                Some(next) => scan.after = Some(next),
                None => return Ok(found),
            }
        }
    }

    /// The end of a conversation: what a model with this room would be told of it, and the message before that, if there is
    /// one.
    pub(crate) async fn tail(
        &self,
        thread_key: &ThreadKey,
        room: u64,
        now: Timestamp,
    ) -> Result<Vec<SizedMessage>, StoreError> {
        let mut scan = Scan::new(Table::Messages, Scope::Partition(thread_key.into())).prefix("0").limit(PAGE_SIZE);
        scan.descending = true;
        let (mut tail, mut from, mut question) = (Vec::new(), None, false);
        loop {
            let page = self.store.scan(scan.clone(), now).await?;
            for (key, row) in page.rows {
                let (kept, _): (KeptMessage, _) = decode_row(&key, &row)?;
                let from = *from.get_or_insert_with(|| trim_point(kept.tokens_so_far, room));
                let enough = question && kept.tokens_so_far <= from;
                question |= matches!(kept.message, Message::User { .. });
                tail.push(SizedMessage::from(&kept));
                if enough {
                    tail.reverse();
                    return Ok(tail);
                }
            }
            match page.next {
                Some(next) => scan.after = Some(next),
                None => break,
            }
        }
        tail.reverse();
        Ok(tail)
    }

    /// Messages of a conversation, the oldest first.
    pub(crate) async fn messages(
        &self,
        thread_key: &ThreadKey,
        limit: usize,
        after: Option<u64>,
        now: Timestamp,
    ) -> Result<Vec<KeptMessage>, StoreError> {
        let mut scan = Scan::new(Table::Messages, Scope::Partition(thread_key.into())).prefix("0").limit(limit.max(1));
        scan.after = after.map(|seq| Cursor(row_key(thread_key, Table::Messages, message_row_id(seq))));
        let rows = self.store.scan(scan, now).await?.rows;
        let kept = |(key, row): (RowKey, _)| decode_row(&key, &row).map(|(kept, _)| kept);
        rows.into_iter().map(kept).collect()
    }

    /// A run, wherever it is.
    pub(crate) async fn run(
        &self,
        tenant: &Tenant,
        run: RunId,
        now: Timestamp,
    ) -> Result<Option<RunRecord>, StoreError> {
        let scan = Scan::new(Table::Runs, Scope::Tenant(tenant.clone())).prefix(run.to_string()).limit(1);
        let row = self.store.scan(scan, now).await?.rows.pop();
        row.map(|(key, row)| decode_row(&key, &row).map(|(record, _)| record)).transpose()
    }

    /// The runs of a thread, the newest first.
    pub(crate) async fn runs(
        &self,
        thread_key: &ThreadKey,
        limit: usize,
        before: Option<RunId>,
        now: Timestamp,
    ) -> Result<Vec<RunRecord>, StoreError> {
        let mut scan = Scan::new(Table::Runs, Scope::Partition(thread_key.into())).prefix("run_").limit(limit.max(1));
        scan.descending = true;
        scan.after = before.map(|run| Cursor(row_key(thread_key, Table::Runs, SmolStr::from(run.to_string()))));
        let rows = self.store.scan(scan, now).await?.rows;
        rows.into_iter().map(|(key, row)| decode_row(&key, &row).map(|(record, _)| record)).collect()
    }
}

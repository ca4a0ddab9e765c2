//! Queries for conversations and runs.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use smol_str::SmolStr;
use toolhub_core::{
    backend::{Cursor, Row, RowKey, RowVersion, Scan, Scope, StoreError, Table},
    clock::Timestamp,
    ids::{RunId, Tenant, ThreadId, ThreadKey},
    page_budget::{LIST_PAGE_BYTES, PageBudget},
};

use super::{
    CallSealer, ConversationHead, HEAD_ROW_ID, OPEN_RUN_ROW_ID, OpenRun, RunCheckout, RunStore, decode_row,
    message_row_id, row_key,
};
use crate::{
    message::Message,
    record::RunRecord,
    window::{SizedMessage, trim_point},
};

/// Rows per store scan.
const PAGE_SIZE: usize = 100;

/// A message of a conversation, as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StoredMessage {
    /// Its number in the conversation, from 1.
    pub seq: u64,
    /// The run it belongs to.
    pub run_id: RunId,
    /// When it was stored.
    pub at: Timestamp,
    /// Estimated tokens of the conversation up to its end.
    #[serde(rename = "tokensSoFar")]
    pub tokens_so_far: u64,
    /// The message itself.
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

    /// The open run of a thread, to continue it.
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
        let (open_run, open_version): (OpenRun, RowVersion) = decode_row(&keys[1], &open)?;
        let open_run = CallSealer::new(&self.sealer, thread_key).unseal_run(open_run);
        let head: Option<(ConversationHead, RowVersion)> = head.map(|row| decode_row(&keys[0], &row)).transpose()?;
        let (head, head_version) = head.map_or_else(Default::default, |(head, version)| (head, Some(version)));
        Ok(Some(RunCheckout { open_run, head, head_version, open_version, unconfirmed_stamps: Vec::new() }))
    }

    /// The threads with an open run, and the node that drives it; no node if the run names none or cannot be read.
    pub(crate) async fn threads_with_open_run(
        &self,
        now: Timestamp,
    ) -> Result<Vec<(ThreadKey, Option<SmolStr>)>, StoreError> {
        let mut scan = Scan::new(Table::Runs, Scope::All).prefix(Table::OPEN_RUN).limit(PAGE_SIZE);
        let mut found = Vec::new();
        loop {
            let page = self.store.scan(scan.clone(), now).await?;
            found.extend(page.rows.into_iter().filter_map(|(key, row)| {
                let thread = key.partition.thread()?.clone();
                let node = serde_json::from_slice::<DriverNode>(&row.value).ok().and_then(|driver| driver.node);
                Some((ThreadKey { tenant: key.partition.tenant, thread }, node))
            }));
            match page.next {
                Some(next) => scan.after = Some(next),
                None => return Ok(found),
            }
        }
    }

    /// The open runs of these threads, by thread. A row that cannot be read is left out.
    pub(crate) async fn open_runs(
        &self,
        threads: &[ThreadKey],
        now: Timestamp,
    ) -> Result<HashMap<ThreadId, RunId>, StoreError> {
        let mut found = HashMap::new();
        for threads in threads.chunks(PAGE_SIZE) {
            let keys: Vec<RowKey> =
                threads.iter().map(|thread| row_key(thread, Table::Runs, OPEN_RUN_ROW_ID)).collect();
            let rows = self.store.load(&keys, now).await?;
            let open = threads.iter().zip(rows).filter_map(|(thread, row)| {
                let open: OpenRunId = serde_json::from_slice(&row?.value).ok()?;
                Some((thread.thread.clone(), open.run.id))
            });
            found.extend(open);
        }
        Ok(found)
    }

    /// The tail of a conversation: the messages that would be sent within this token budget, and the one before them,
    /// if there is one.
    pub(crate) async fn tail(
        &self,
        thread_key: &ThreadKey,
        budget: u64,
        now: Timestamp,
    ) -> Result<Vec<SizedMessage>, StoreError> {
        let mut scan = Scan::new(Table::Messages, Scope::Partition(thread_key.into())).prefix("0").limit(PAGE_SIZE);
        scan.descending = true;
        let sealer = CallSealer::new(&self.sealer, thread_key);
        let (mut tail, mut trim_at, mut has_user_message) = (Vec::new(), None, false);
        loop {
            let page = self.store.scan(scan.clone(), now).await?;
            for (key, row) in page.rows {
                let (mut stored, _): (StoredMessage, _) = decode_row(&key, &row)?;
                stored.message = sealer.unseal_message(stored.message);
                let trim_at = *trim_at.get_or_insert_with(|| trim_point(stored.tokens_so_far, budget));
                let enough = has_user_message && stored.tokens_so_far <= trim_at;
                has_user_message |= matches!(stored.message, Message::User { .. });
                tail.push(SizedMessage::from(&stored));
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
    ) -> Result<Vec<StoredMessage>, StoreError> {
        let mut scan = Scan::new(Table::Messages, Scope::Partition(thread_key.into())).prefix("0").limit(limit.max(1));
        scan.after = after.map(|seq| Cursor(row_key(thread_key, Table::Messages, message_row_id(seq))));
        let messages: Vec<StoredMessage> =
            decode_page(self.store.scan(scan.max_bytes(LIST_PAGE_BYTES), now).await?.rows)?;
        let sealer = CallSealer::new(&self.sealer, thread_key);
        let unseal = |stored: StoredMessage| StoredMessage { message: sealer.unseal_message(stored.message), ..stored };
        Ok(messages.into_iter().map(unseal).collect())
    }

    /// A run by its id, in any thread of the tenant.
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

    /// A run of a thread, by key.
    pub(crate) async fn run_in_thread(
        &self,
        thread_key: &ThreadKey,
        run: RunId,
        now: Timestamp,
    ) -> Result<Option<RunRecord>, StoreError> {
        let key = row_key(thread_key, Table::Runs, SmolStr::from(run.to_string()));
        let row = self.store.load(std::slice::from_ref(&key), now).await?.pop().flatten();
        row.map(|row| decode_row(&key, &row).map(|(record, _)| record)).transpose()
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
        decode_page(self.store.scan(scan.max_bytes(LIST_PAGE_BYTES), now).await?.rows)
    }

    /// The runs of all threads of a tenant, the newest first; after this run of that thread, if given.
    pub(crate) async fn tenant_runs(
        &self,
        tenant: &Tenant,
        limit: usize,
        before: Option<(RunId, ThreadId)>,
        now: Timestamp,
    ) -> Result<Vec<RunRecord>, StoreError> {
        let limit = limit.max(1);
        let scan = Scan::new(Table::Runs, Scope::Tenant(tenant.clone())).prefix("run_").limit(limit);
        let mut scan = scan.max_bytes(LIST_PAGE_BYTES);
        scan.descending = true;
        scan.after = before.map(|(run, thread)| {
            Cursor(row_key(&ThreadKey::new(tenant, &thread), Table::Runs, SmolStr::from(run.to_string())))
        });
        let (mut runs, mut budget) = (Vec::new(), PageBudget::default());
        loop {
            // A page of several partitions may be short without being the last.
            let page = self.store.scan(scan.clone(), now).await?;
            for (key, row) in page.rows {
                if budget.is_spent() {
                    return Ok(runs);
                }
                budget.spend(&row.value);
                runs.push(decode_row(&key, &row)?.0);
            }
            match page.next {
                Some(next) if runs.len() < limit && !budget.is_spent() => scan.after = Some(next),
                _ => break,
            }
        }
        runs.truncate(limit);
        Ok(runs)
    }
}

/// The part of an open run that names its node.
#[derive(Deserialize)]
struct DriverNode {
    #[serde(default)]
    node: Option<SmolStr>,
}

/// The part of an open run that names it.
#[derive(Deserialize)]
struct OpenRunId {
    run: RunIdOnly,
}

#[derive(Deserialize)]
struct RunIdOnly {
    id: RunId,
}

/// Decodes the rows of a list, as many as fit on a page.
fn decode_page<T: DeserializeOwned>(rows: Vec<(RowKey, Row)>) -> Result<Vec<T>, StoreError> {
    let (mut items, mut budget) = (Vec::new(), PageBudget::default());
    for (key, row) in rows {
        if budget.is_spent() {
            break;
        }
        budget.spend(&row.value);
        items.push(decode_row(&key, &row)?.0);
    }
    Ok(items)
}

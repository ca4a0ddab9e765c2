//! Counts the rows of a table by id: by the sorted sets of ids, less the rows that have expired and are not swept yet.

use std::collections::BTreeMap;

use redis::Cmd;
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Scope, StoreError, Table},
    clock::Timestamp,
};

use super::{
    super::{
        Redis, answer,
        expiries::{Expiries, log_skipped},
        requests::Request,
    },
    bounds::SEPARATOR,
};

/// How many members are read from a set at a time.
const PIECE: usize = 1000;

impl Redis {
    pub(in super::super) async fn count_rows_by_id(
        &self,
        table: Table,
        now: Timestamp,
    ) -> Result<BTreeMap<SmolStr, u64>, StoreError> {
        let mut counts = BTreeMap::<SmolStr, u64>::new();
        for (bucket, tenant) in self.tenants(&Scope::All).await? {
            let (key, mut lower) = (self.keys.ids(bucket, table, &tenant), b"-".to_vec());
            loop {
                let mut command = Cmd::new();
                command.arg("ZRANGE").arg(&key).arg(lower).arg("+").arg("BYLEX").arg("LIMIT").arg(0).arg(PIECE);
                let answers = self.requests.read(&[Request::Command(command)]).await?;
                let members = answer::into_array(answers.into_iter().next().ok_or_else(answer::unexpected)?)?;
                let is_last = members.len() < PIECE;
                let mut last = Vec::new();
                for member in members {
                    last = answer::into_bytes(member)?;
                    let end = last.iter().position(|byte| *byte == SEPARATOR);
                    match end.and_then(|end| str::from_utf8(&last[..end]).ok()) {
                        Some(id) => *counts.entry(id.into()).or_default() += 1,
                        None => log_skipped(&last),
                    }
                }
                if is_last {
                    break;
                }
                lower = [b"(", last.as_slice()].concat();
            }
        }
        for bucket in self.keys.buckets() {
            let mut expiries = Expiries::new(&self.keys, bucket, now, PIECE);
            while !expiries.is_complete() {
                let page = self.requests.read(&[expiries.request()]).await?;
                let rows = expiries.read(page.into_iter().next().ok_or_else(answer::unexpected)?)?;
                for row in rows.into_iter().filter(|row| row.table == table) {
                    if let Some(count) = counts.get_mut(&row.id) {
                        *count = count.saturating_sub(1);
                    }
                }
            }
        }
        counts.retain(|_, count| *count > 0);
        Ok(counts)
    }
}

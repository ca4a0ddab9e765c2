//! Takes contexts out: one line of JSON for each.
//!
//! In: a tenant, or one of its threads. Out: text that `import` takes in again, in this store or another. Business and
//! session state, snapshots and history go along; what a tool may lose and live connections do not.

use std::collections::BTreeSet;

use super::{MAX_ATTEMPTS, StateManager, history::newest_first_scan};
use crate::state::{
    ContextId, StateError, StateKind,
    entry::{self, state_id},
    export_line::{ExportedContext, ExportedEntry, ExportedState},
    history, versions,
};
use toolhub_storage::backend::{Partition, Row, Scan, Scope, Table};
use toolhub_types::{
    ids::{Tenant, ThreadId},
    timestamp::Timestamp,
};

impl StateManager {
    /// Everything a tenant's tools remember, or what those of one thread do, as lines of JSON. Each context is as it was at
    /// one moment.
    ///
    /// # Errors
    /// When the store does not answer, or holds a state that is no JSON.
    pub async fn export(&self, tenant: &Tenant, thread: Option<&ThreadId>) -> Result<String, StateError> {
        let scope = match thread {
            Some(thread) => Scope::Partition(Partition::for_thread(tenant.clone(), thread.clone())),
            None => Scope::Tenant(tenant.clone()),
        };
        let mut contexts = BTreeSet::new();
        for table in [Table::State, Table::History] {
            let mut scan = Scan::new(table, scope.clone()).limit(10_000);
            loop {
                let page = self.0.store.scan(scan.clone(), self.now()).await?;
                contexts.extend(page.rows.iter().filter_map(|(key, _)| Some(ContextId::from_row_key(key)?.0)));
                match page.next {
                    Some(next) => scan.after = Some(next),
                    None => break,
                }
            }
        }
        let mut lines = String::new();
        for context in contexts {
            let saved = self.export_context(tenant, &context).await?;
            if !saved.is_empty() {
                let unreadable = |error: serde_json::Error| StateError::Unreadable {
                    state: state_id(&context, StateKind::Business),
                    reason: error.to_string(),
                };
                lines.push_str(&saved.into_line().map_err(unreadable)?);
                lines.push('\n');
            }
        }
        Ok(lines)
    }

    /// A context as it was at one moment: read again when somebody wrote while it was read.
    async fn export_context(&self, tenant: &Tenant, context: &ContextId) -> Result<ExportedContext, StateError> {
        let keys = [context.key(tenant, StateKind::Business), context.key(tenant, StateKind::Session)];
        let partition = context.partition(tenant);
        for _ in 0..MAX_ATTEMPTS {
            let now = self.now();
            let (session, before) = self.load_in_session(&partition, &keys, now).await?;
            if session.is_ended() {
                return Ok(ExportedContext::new(context.clone()));
            }
            let saved = self.read_context_once(tenant, context, &before, now).await?;
            let after = self.0.store.load(&keys, now).await?;
            let seen =
                |rows: &[Option<Row>]| rows.iter().map(|row| row.as_ref().map(|row| row.version)).collect::<Vec<_>>();
            if seen(&before) == seen(&after) {
                return Ok(saved);
            }
            tokio::task::yield_now().await;
        }
        Err(StateError::Conflict { state: state_id(context, StateKind::Business), found: 0 })
    }

    async fn read_context_once(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        rows: &[Option<Row>],
        now: Timestamp,
    ) -> Result<ExportedContext, StateError> {
        let mut saved = ExportedContext::new(context.clone());
        let state = |kind, row: &Row, version| {
            let data = entry::read_data(context, kind, row)?;
            Ok::<_, StateError>(ExportedState { version, schema: row.schema, expires: row.expires, data })
        };
        if let Some(Some(row)) = rows.first() {
            let version = row.version.number;
            saved.business = Some(state(StateKind::Business, row, version)?);
            for (key, row) in self.all_rows(tenant, context, Table::Versions, now).await? {
                let number = key.rsplit('/').next().and_then(|digits| digits.parse().ok());
                if let Some(number) = number.filter(|it| versions::is_retained(*it, version, self.max_snapshots())) {
                    saved.versions.push(state(StateKind::Business, &row, number)?);
                }
            }
        }
        if let Some(Some(row)) = rows.get(1) {
            saved.session = Some(state(StateKind::Session, row, row.version.number)?);
        }
        if self.0.business.max_history_size > 0 {
            let scan = newest_first_scan(tenant, context, Table::History, self.0.business.max_history_size);
            for (key, row) in self.0.store.scan(scan, now).await?.rows.into_iter().rev() {
                match history::read(&key.id, &row) {
                    Ok(entry) => {
                        let id = key.id.rsplit('/').next().unwrap_or_default().to_owned();
                        saved.history.push(ExportedEntry { id, expires: row.expires, entry });
                    }
                    Err(error) => error.log_skipped(),
                }
            }
        }
        Ok(saved)
    }
}

//! Exports contexts as JSON Lines.
//!
//! In: a tenant, or one of its threads. Out: text that `import` reads, into this store or another. Includes business
//! and session state, snapshots and history; omits cache and connection state.

use std::collections::BTreeSet;

use super::{MAX_ATTEMPTS, StateManager, history::newest_first_scan};
use crate::{
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
    /// All states of a tenant, or those of one thread, as JSON Lines. Each context is a consistent snapshot.
    ///
    /// # Errors
    /// When the store fails, or a stored state is not JSON.
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
            let exported = self.export_context(tenant, &context).await?;
            if !exported.is_empty() {
                let unreadable = |error: serde_json::Error| StateError::Unreadable {
                    state: state_id(&context, StateKind::Business),
                    reason: error.to_string(),
                };
                lines.push_str(&exported.into_line().map_err(unreadable)?);
                lines.push('\n');
            }
        }
        Ok(lines)
    }

    /// A consistent snapshot of a context: reads again when a concurrent write changed it meanwhile.
    async fn export_context(&self, tenant: &Tenant, context: &ContextId) -> Result<ExportedContext, StateError> {
        let keys = [context.key(tenant, StateKind::Business), context.key(tenant, StateKind::Session)];
        let partition = context.partition(tenant);
        for _ in 0..MAX_ATTEMPTS {
            let now = self.now();
            let (session, before) = self.load_in_session(&partition, &keys, now).await?;
            if session.is_ended() {
                return Ok(ExportedContext::new(context.clone()));
            }
            let exported = self.read_context_once(tenant, context, &before, now).await?;
            let after = self.0.store.load(&keys, now).await?;
            let row_versions =
                |rows: &[Option<Row>]| rows.iter().map(|row| row.as_ref().map(|row| row.version)).collect::<Vec<_>>();
            if row_versions(&before) == row_versions(&after) {
                return Ok(exported);
            }
            tokio::task::yield_now().await;
        }
        Err(StateError::Conflict { state: state_id(context, StateKind::Business), found: 0, expected: None })
    }

    async fn read_context_once(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        rows: &[Option<Row>],
        now: Timestamp,
    ) -> Result<ExportedContext, StateError> {
        let mut exported = ExportedContext::new(context.clone());
        let limits = self.limits(context);
        let state = |kind, row: &Row, version| {
            let data = entry::read_data(context, kind, row)?;
            Ok::<_, StateError>(ExportedState { version, schema: row.schema, expires: row.expires, data })
        };
        if let Some(Some(row)) = rows.first() {
            let version = row.version.number;
            exported.business = Some(state(StateKind::Business, row, version)?);
            for (key, row) in self.all_rows(tenant, context, Table::Versions, now).await? {
                let number = key.rsplit('/').next().and_then(|digits| digits.parse().ok());
                if let Some(number) =
                    number.filter(|number| versions::is_retained(*number, version, limits.max_snapshots))
                {
                    exported.versions.push(state(StateKind::Business, &row, number)?);
                }
            }
        }
        if let Some(Some(row)) = rows.get(1) {
            exported.session = Some(state(StateKind::Session, row, row.version.number)?);
        }
        if limits.max_history_size > 0 {
            let scan = newest_first_scan(tenant, context, Table::History, limits.max_history_size);
            for (key, row) in self.0.store.scan(scan, now).await?.rows.into_iter().rev() {
                match history::read(&key.id, &row) {
                    Ok(entry) => {
                        let id = key.id.rsplit('/').next().unwrap_or_default().to_owned();
                        exported.history.push(ExportedEntry { id, expires: row.expires, entry });
                    }
                    Err(error) => error.log_skipped(),
                }
            }
        }
        Ok(exported)
    }
}

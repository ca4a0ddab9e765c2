//! Reads approvals: by binding, by id, and lists of a tenant.
//!
//! In: a binding, an id or a filter. Out: stored approvals. An unreadable row is logged and skipped.

use super::{APPROVAL_ID_PREFIX, Approval, Approvals, LAYOUT, StoredApproval, list_row_id, ok_or_log};
use toolhub_storage::backend::{
    Cursor, Partition, PartitionKind, RowKey, RowVersion, Scan, Scope, StoreError, Table, decode, read_all,
};
use toolhub_types::{
    ids::{ApprovalId, Tenant},
    json::CompactJson,
    page_budget::{LIST_PAGE_BYTES, PageBudget},
};

/// Maximum number of rows read per scan of a filtered list.
const MAX_SCAN_BATCH: usize = 500;

impl Approvals {
    /// The relevant approvals with this binding, newest first.
    pub(crate) async fn find_by_binding(
        &self,
        partition: &Partition,
        binding: &str,
    ) -> Result<Vec<StoredApproval>, StoreError> {
        let (ids, _) = self.load_list(partition, binding).await?;
        self.load_listed(partition, binding, &ids).await
    }

    /// The approvals with this binding, oldest first, relevant or not, and the row version of their list.
    pub(super) async fn load_list(
        &self,
        partition: &Partition,
        binding: &str,
    ) -> Result<(Vec<ApprovalId>, Option<RowVersion>), StoreError> {
        let list = [RowKey { partition: partition.clone(), table: Table::Approvals, id: list_row_id(binding) }];
        let row = self.store.load(&list, self.clock.now()).await?.pop().flatten();
        let Some(row) = row else { return Ok((Vec::new(), None)) };
        // An unreadable list approves nothing: the call asks again and rewrites the list.
        let ids = ok_or_log(decode(Table::Approvals, &list[0].id, LAYOUT, &row)).map(|(ids, _)| ids);
        Ok((ids.unwrap_or_default(), Some(row.version)))
    }

    /// Those of the listed approvals that are relevant, newest first.
    pub(super) async fn load_listed(
        &self,
        partition: &Partition,
        binding: &str,
        ids: &[ApprovalId],
    ) -> Result<Vec<StoredApproval>, StoreError> {
        let now = self.clock.now();
        let key = |id: &ApprovalId| RowKey { partition: partition.clone(), table: Table::Approvals, id: (*id).into() };
        let keys: Vec<RowKey> = ids.iter().rev().map(key).collect();
        let rows = self.store.load(&keys, now).await?;
        let found = keys.into_iter().zip(rows).filter_map(|(key, row)| ok_or_log(self.decode(key, &row?)));
        let is_relevant =
            |stored: &StoredApproval| stored.approval.binding == binding && stored.approval.is_relevant(now);
        Ok(found.filter(is_relevant).collect())
    }

    /// Every approval of a tenant, oldest first.
    pub(crate) async fn of_tenant(&self, tenant: &Tenant) -> Result<Vec<StoredApproval>, StoreError> {
        let scan = Scan::new(Table::Approvals, Scope::Tenant(tenant.clone())).prefix(APPROVAL_ID_PREFIX);
        let rows = read_all(&*self.store, scan, self.clock.now()).await?;
        // An unreadable row must not hide the others.
        let mut found: Vec<StoredApproval> =
            rows.into_iter().filter_map(|(key, row)| ok_or_log(self.decode(key, &row))).collect();
        found.sort_by_key(|stored| stored.approval.id);
        Ok(found)
    }

    /// The newest approvals of a tenant that match, at most `limit`, older than `before`; fewer if they are large, but at
    /// least one if there is one. Scans until the limit is reached, so a filter that matches few reads all.
    pub(crate) async fn newest(
        &self,
        tenant: &Tenant,
        before: Option<ApprovalId>,
        limit: usize,
        matches: impl Fn(&Approval<CompactJson>) -> bool,
    ) -> Result<Vec<StoredApproval>, StoreError> {
        // Ids increase with time and are unique, so the order does not depend on the partition and any partition will
        // do.
        let row_key = |id: ApprovalId| {
            let partition = Partition { tenant: tenant.clone(), kind: PartitionKind::Grants };
            RowKey { partition, table: Table::Approvals, id: id.into() }
        };
        let scan = Scan::new(Table::Approvals, Scope::Tenant(tenant.clone())).prefix(APPROVAL_ID_PREFIX);
        let mut scan = Scan {
            descending: true,
            after: before.map(row_key).map(Cursor),
            ..scan.limit(limit.clamp(1, MAX_SCAN_BATCH)).max_bytes(LIST_PAGE_BYTES)
        };
        let (mut found, mut budget) = (Vec::new(), PageBudget::default());
        loop {
            let page = self.store.scan(scan.clone(), self.clock.now()).await?;
            let is_older = |stored: &StoredApproval| before.is_none_or(|before| stored.approval.id < before);
            for (key, row) in page.rows {
                if found.len() == limit || budget.is_spent() {
                    return Ok(found);
                }
                let decoded = ok_or_log(self.decode(key, &row));
                if let Some(stored) = decoded.filter(|stored| is_older(stored) && matches(&stored.approval)) {
                    budget.spend(&row.value);
                    found.push(stored);
                }
            }
            match page.next.filter(|_| found.len() < limit && !budget.is_spent()) {
                // Double the batch while few rows match.
                Some(next) => (scan.after, scan.limit) = (Some(next), (2 * scan.limit).min(MAX_SCAN_BATCH)),
                None => return Ok(found),
            }
        }
    }

    /// One approval of a tenant.
    pub(crate) async fn find(&self, tenant: &Tenant, id: ApprovalId) -> Result<Option<StoredApproval>, StoreError> {
        // Users know only the id, not the partition, so scan the tenant by id prefix.
        let scan = Scan::new(Table::Approvals, Scope::Tenant(tenant.clone())).prefix(id.to_string()).limit(1);
        let page = self.store.scan(scan, self.clock.now()).await?;
        page.rows.into_iter().next().map(|(key, row)| self.decode(key, &row)).transpose()
    }
}

//! Stores grants: reads, lists and revokes them.
//!
//! In: a tool and a rule, or the key of a grant. Out: whether a grant approves it. `grant.rs` decides what a grant covers.

use super::{Approval, ApprovalState, Approvals, Grant, GrantScope, LAYOUT, ToolVersion, ok_or_log};
use toolhub_storage::backend::{
    Batch, Change, Durability, Expect, RowKey, Scan, Scope, StoreError, Table, Write, decode, encode, read_all,
};
use toolhub_types::ids::{Tenant, ThreadId};

impl Approvals {
    /// Whether a grant approves this tool for this rule.
    pub(crate) async fn is_granted(
        &self,
        tool: ToolVersion<'_>,
        tenant: &Tenant,
        thread: Option<&ThreadId>,
        rule: &str,
    ) -> Result<bool, StoreError> {
        Ok(!self.grants_for(tool, tenant, thread, &[rule]).await?.is_empty())
    }

    /// The grants that approve this tool for one of these rules.
    pub(crate) async fn grants_for(
        &self,
        tool: ToolVersion<'_>,
        tenant: &Tenant,
        thread: Option<&ThreadId>,
        rules: &[&str],
    ) -> Result<Vec<Grant>, StoreError> {
        let scopes: Vec<GrantScope> = GrantScope::candidates(tool.definition, thread).collect();
        let keys: Vec<RowKey> =
            rules.iter().flat_map(|rule| scopes.iter().map(|scope| scope.key(tenant, rule))).collect();
        let rows = self.store.load(&keys, self.clock.now()).await?;
        let grants = keys.iter().zip(rows).filter_map(|(key, row)| {
            let grant: Grant = ok_or_log(decode(Table::Grants, &key.id, LAYOUT, &row?))?.0;
            Some(grant)
        });
        Ok(grants.filter(|grant| grant.holds_for(tool)).collect())
    }

    /// The grants of a tenant.
    pub(crate) async fn grants(&self, tenant: &Tenant) -> Result<Vec<(RowKey, Grant)>, StoreError> {
        let scan = Scan::new(Table::Grants, Scope::Tenant(tenant.clone()));
        let rows = read_all(&*self.store, scan, self.clock.now()).await?;
        let grants = rows.into_iter().filter_map(|(key, row)| {
            let grant: Grant = ok_or_log(decode(Table::Grants, &key.id, LAYOUT, &row))?.0;
            Some((key, grant))
        });
        Ok(grants.collect())
    }

    /// Withdraws the approvals that gave a grant and that no call has used: calls are made with the grant, and one of them would be
    /// made with the approval after the grant was revoked.
    pub(crate) async fn withdraw_unused(&self, tenant: &Tenant, grant: &Grant) -> Result<(), StoreError> {
        let now = self.clock.now();
        let unused = self.of_tenant(tenant).await?.into_iter();
        for stored in unused.filter(|it| it.approval.is_usable(now) && grant.is_given_by(&it.approval)) {
            let withdrawn = Approval { state: ApprovalState::Withdrawn, ..stored.approval.clone() };
            let write = self.write(&withdrawn, Expect::Same(stored.row_version))?;
            match self.store.commit(Batch::new(stored.partition).with(write), now).await {
                // A call uses it now.
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Revokes a grant.
    pub(crate) async fn revoke(&self, key: RowKey) -> Result<(), StoreError> {
        let write = Write {
            table: key.table,
            id: key.id,
            expect: Expect::Any,
            change: Change::Remove,
            durability: Durability::PowerSafe,
        };
        self.store.commit(Batch::new(key.partition).with(write), self.clock.now()).await.map(|_| ())
    }
}

/// The write that stores a grant.
pub(super) fn grant_write(key: &RowKey, grant: &Grant) -> Result<Write, StoreError> {
    Ok(Write {
        table: Table::Grants,
        id: key.id.clone(),
        expect: Expect::Any,
        change: Change::Put { value: encode(Table::Grants, &key.id, grant)?, schema: LAYOUT, expires: None },
        durability: Durability::PowerSafe,
    })
}

//! Public API of approvals and grants: list, resolve, revoke.
//!
//! In: a tenant and an answer to an approval. Out: approvals and grants with secrets redacted. `approvals` stores them; this file
//! checks an answer against the current tool and its rules.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;

use super::ToolHub;
use crate::{
    approvals::{Answer, Approval, ApprovalError, ApprovalReservation, Grant, GrantScope, current_binding},
    execution::Tool,
    registry::ToolFilter,
};
use toolhub_storage::backend::StoreError;
use toolhub_types::redact::Redactor;
use toolhub_types::{
    approval::{ApprovalOutcome, ApprovalState},
    ids::{ApprovalId, Tenant, ThreadId},
    json::CompactJson,
    policy::PolicyDecision,
    problem::Problem,
    tool::ToolName,
};

impl ToolHub {
    /// A tenant's approvals, oldest first; only those in `state`, if one is given.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn approvals(&self, tenant: &Tenant, state: Option<ApprovalState>) -> Result<Vec<Approval>, StoreError> {
        let all = self.engine.approvals.of_tenant(tenant).await?;
        let all = all.into_iter().map(|permit| self.with_current_state(permit.approval));
        Ok(all.filter(|approval| state.is_none_or(|wanted| approval.state == wanted)).collect())
    }

    /// At most `limit` of a tenant's approvals, newest first; only those in `state` and older than `before`, if given. The list
    /// ends early at 4 MiB of approvals; the last one is followed by an empty list.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn newest_approvals(
        &self,
        tenant: &Tenant,
        state: Option<ApprovalState>,
        before: Option<ApprovalId>,
        limit: usize,
    ) -> Result<Vec<Approval>, StoreError> {
        let now = self.now();
        let matches = |approval: &Approval<CompactJson>| state.is_none_or(|wanted| approval.state_at(now) == wanted);
        let found = self.engine.approvals.newest(tenant, before, limit, matches).await?;
        Ok(found.into_iter().map(|permit| self.with_current_state(permit.approval)).collect())
    }

    /// The number of pending approvals of each of a tenant's threads that has any.
    #[must_use]
    pub fn pending_approvals_by_thread(&self, tenant: &Tenant) -> HashMap<ThreadId, usize> {
        self.engine.approvals.pending_by_thread(tenant)
    }

    /// One approval.
    ///
    /// # Errors
    /// When the store does not answer, or the record cannot be read.
    pub async fn approval(&self, tenant: &Tenant, id: ApprovalId) -> Result<Option<Approval>, StoreError> {
        let found = self.engine.approvals.find(tenant, id).await?;
        Ok(found.map(|permit| self.with_current_state(permit.approval)))
    }

    /// Whether a call waits for this approval, and continues by itself once it is approved. Otherwise its caller could not
    /// wait, or is gone, and an approved call runs when it is made again.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn is_awaited(&self, tenant: &Tenant, approval: &Approval) -> Result<bool, StoreError> {
        // A repetition of the call may wait for it too.
        if self.engine.approvals.has_waiter(approval.id) {
            return Ok(true);
        }
        let record = self.unredacted_record(tenant, approval.call_id).await?;
        Ok(record.is_some_and(|record| record.outcome.is_none()))
    }

    /// Answers an approval. The waiting call continues; a call that could not wait continues when it is made again.
    ///
    /// # Errors
    /// When there is no such approval or it was already answered; when the tool has changed since; when edited arguments
    /// do not fit the tool; when a rule now denies the call; when the store does not answer. A denial is always accepted.
    pub async fn resolve_approval(
        &self,
        tenant: &Tenant,
        id: ApprovalId,
        answer: Answer,
    ) -> Result<Approval, ApprovalError> {
        let approvals = &self.engine.approvals;
        let stored = approvals.find(tenant, id).await?.ok_or(ApprovalError::Unknown(id))?;
        let now = self.now();
        match stored.approval.state_at(now) {
            ApprovalState::Pending => {}
            state => return Err(ApprovalError::Resolved(state)),
        }
        let answer = Answer { at: now, ..answer };
        match (answer.outcome, &answer.arguments) {
            (ApprovalOutcome::ModifyWithEditor, None) => return Err(ApprovalError::ArgumentsMissing),
            (ApprovalOutcome::ModifyWithEditor, Some(_)) | (_, None) => {}
            (_, Some(_)) => {
                return Err(ApprovalError::Answer("`arguments` are allowed only with `modify_with_editor`"));
            }
        }
        let mut approval = stored.approval.clone();
        let grant = if answer.outcome == ApprovalOutcome::Cancel {
            approval.state = ApprovalState::Denied;
            None
        } else {
            approval.state = ApprovalState::Approved;
            let tool = self.find_unchanged_tool(&approval)?;
            let original = self.original_arguments(tenant, &approval).await?;
            check_answer(
                &tool,
                &approval,
                &answer,
                &original.unwrap_or_else(|| approval.arguments.to_value().into_owned()),
            )?;
            let scope =
                GrantScope::from_outcome(answer.outcome, &approval, &tool.definition).map_err(ApprovalError::Answer)?;
            scope.map(|scope| {
                let key = scope.key(tenant, &approval.rule);
                let tools = self.tools_in_scope(&scope, &tool);
                let tools: Vec<_> = tools.iter().map(|tool| tool.version()).collect();
                let grant = Grant::new(&key, scope, &approval, &answer, &tools);
                (key, grant)
            })
        };
        // The approval must be used within as much time as there was to answer it.
        approval.expires_at = now + approval.expires_at.since(approval.asked_at);
        approval.answer = Some(answer);
        approvals.answer(stored, approval, grant).await.map(|approval| self.with_current_state(approval))
    }

    /// Reserves the answer of an approval: until the returned value is dropped, calls on this node leave it to the call that
    /// [names](crate::ApprovalReuse::Only) the approval. For a caller that answers the approval of its own call and then makes the
    /// call again.
    pub fn reserve_approval(&self, id: ApprovalId) -> ApprovalReservation {
        self.engine.approvals.reserve(id)
    }

    /// Withdraws a pending approval, because its caller gave up. One that is resolved stays as it is.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn withdraw_approval(&self, tenant: &Tenant, id: ApprovalId) -> Result<(), StoreError> {
        let found = self.engine.approvals.find(tenant, id).await?;
        let pending = found.filter(|found| found.approval.state_at(self.now()) == ApprovalState::Pending);
        if let Some(pending) = pending {
            self.engine.approvals.close(pending, ApprovalState::Withdrawn).await?;
        }
        Ok(())
    }

    /// Sets where people read approvals, as `{url}/{id}`, for the log. Only the first call has an effect.
    pub fn set_approval_page_url(&self, url: impl Into<String>) {
        self.engine.approvals.set_page_url(url.into());
    }

    /// A tenant's grants.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn grants(&self, tenant: &Tenant) -> Result<Vec<Grant>, StoreError> {
        Ok(self.engine.approvals.grants(tenant).await?.into_iter().map(|(_, grant)| grant).collect())
    }

    /// Whether a grant applies to this tool. Not to a tool whose definition is another one now, also if that waits for approval; a
    /// tool that is not registered now may come back as it was.
    #[must_use]
    pub fn grant_applies(&self, grant: &Grant, tool: &ToolName) -> bool {
        grant.definitions.contains_key(tool) && self.get(tool).is_none_or(|tool| grant.holds_for(tool.version()))
    }

    /// Revokes a grant: the next call asks again. Unused approvals that gave the grant are withdrawn.
    ///
    /// # Errors
    /// When there is no such grant, or the store does not answer.
    pub async fn revoke_grant(&self, tenant: &Tenant, id: &str) -> Result<Grant, ApprovalError> {
        let all = self.engine.approvals.grants(tenant).await?;
        let found = all.into_iter().find(|(_, grant)| grant.id == id);
        let (key, grant) = found.ok_or_else(|| ApprovalError::UnknownGrant(id.into()))?;
        // First, so that none is left if the process ends in between.
        self.engine.approvals.withdraw_unused(tenant, &grant).await?;
        self.engine.approvals.revoke(key).await?;
        Ok(grant)
    }

    /// The arguments as the caller sent them, with secrets: for rules, and to restore what an editor saw redacted. Known only
    /// while the call is open; the approval itself holds no secrets.
    async fn original_arguments(
        &self,
        tenant: &Tenant,
        approval: &Approval<CompactJson>,
    ) -> Result<Option<Value>, StoreError> {
        let record = self.unredacted_record(tenant, approval.call_id).await?;
        Ok(record.filter(|record| record.outcome.is_none()).map(|record| record.arguments))
    }

    fn with_current_state(&self, approval: Approval<CompactJson>) -> Approval {
        let mut approval = approval.into_parsed();
        approval.state = approval.state_at(self.now());
        approval.binding.clear();
        approval.digest.clear();
        approval.is_exclusive = false;
        approval.without_secrets(&self.engine.services.redactor)
    }

    /// The tool, if it has not changed since the approval was requested.
    fn find_unchanged_tool(&self, approval: &Approval<CompactJson>) -> Result<Arc<Tool>, ApprovalError> {
        let same =
            self.get(&approval.tool).filter(|tool| current_binding(approval, tool.version()) == approval.binding);
        same.ok_or_else(|| ApprovalError::ToolChanged(approval.tool.clone()))
    }

    /// The tools a grant covers.
    fn tools_in_scope(&self, scope: &GrantScope, tool: &Arc<Tool>) -> Vec<Arc<Tool>> {
        let GrantScope::Server { server } = scope else { return vec![tool.clone()] };
        let from_server = |tool: &Arc<Tool>| tool.definition.origin.as_ref().is_some_and(|it| it.source == *server);
        self.list(&ToolFilter::default()).into_iter().filter(from_server).collect()
    }
}

/// Checks that edited arguments fit the tool and that no current rule denies the call. `original` are the arguments that the
/// approval was requested for.
fn check_answer(
    tool: &Tool,
    approval: &Approval<CompactJson>,
    answer: &Answer,
    original: &Value,
) -> Result<(), ApprovalError> {
    let redactor = &tool.services.redactor;
    let mut edited = answer.arguments.clone();
    if let Some(edited) = &mut edited {
        if !redactor.restore(edited, original) {
            return Err(ApprovalError::Answer(
                "`[redacted]` may only stay where a value was redacted; elsewhere write the value itself",
            ));
        }
        let written = answer.arguments.as_ref().unwrap_or(&Value::Null);
        let found = tool.schema.check(edited, redactor).err().unwrap_or_default();
        let problems = redact_problems(redactor, (written, edited), found);
        if !problems.is_empty() {
            return Err(ApprovalError::Arguments { tool: approval.tool.clone(), problems });
        }
    }
    // Values that are still redacted cannot be matched here; the policy stage evaluates all rules again when the call runs.
    let mut arguments = edited.unwrap_or_else(|| original.clone());
    redactor.remove_redacted(&mut arguments);
    match tool.gate.decide(&tool.definition, &arguments, &approval.caller) {
        PolicyDecision::Deny(denial) => Err(ApprovalError::Forbidden(denial.reason)),
        PolicyDecision::Allow | PolicyDecision::Ask(_) => Ok(()),
    }
}

/// Validation problems of edited arguments, without anything about secrets that the editor was not shown. `written` are the
/// arguments as edited, `arguments` the same with secrets restored. Secrets that could not be restored are not validated here;
/// the validation stage does it when the call runs.
fn redact_problems(
    redactor: &Redactor,
    (written, arguments): (&Value, &Value),
    problems: Vec<Problem>,
) -> Vec<Problem> {
    let redact_problem = |mut problem: Problem| {
        let under_secret = redactor.secret_part(&problem.pointer).is_some();
        let is_redacted = |value: &Value| {
            value.pointer(&problem.pointer).is_some_and(|it| redactor.contains_redacted(it, under_secret))
        };
        if is_redacted(arguments) {
            return None;
        }
        // The editor wrote nothing below a restored secret, so a problem there must not reveal its value.
        let was_written = written.pointer(&problem.pointer).is_some() && !is_redacted(written);
        if !was_written && arguments.pointer(&problem.pointer).is_some() {
            (problem.detail, problem.suggestion) = ("conflicts with a redacted value".into(), None);
        }
        Some(problem)
    };
    problems.into_iter().filter_map(redact_problem).collect()
}

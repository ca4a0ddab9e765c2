//! The front door for people who answer questions about calls, and for what they have allowed for good.

use std::sync::Arc;

use serde_json::Value;

use super::ToolHub;
use crate::{
    approvals::{Answer, Approval, ApprovalError, Grant, GrantScope, current_binding},
    execution::Tool,
    redact::Redactor,
    registry::ToolFilter,
};
use toolhub_storage::backend::StoreError;
use toolhub_types::{
    approval::{ApprovalOutcome, ApprovalState},
    ids::{ApprovalId, Tenant},
    policy::Verdict,
    problem::Problem,
};

impl ToolHub {
    /// The questions of a tenant's calls, the oldest first; only those in this state, where one is named.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn approvals(&self, tenant: &Tenant, state: Option<ApprovalState>) -> Result<Vec<Approval>, StoreError> {
        let all = self.engine.approvals.of_tenant(tenant).await?;
        let all = all.into_iter().map(|permit| self.with_current_state(permit.approval));
        Ok(all.filter(|approval| state.is_none_or(|wanted| approval.state == wanted)).collect())
    }

    /// The newest questions of a tenant's calls, the newest first, at most so many: only those in this state, where one is named,
    /// and only those that were asked before the question `before`.
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
        let wanted = |approval: &Approval| state.is_none_or(|wanted| approval.state_at(now) == wanted);
        let found = self.engine.approvals.newest(tenant, before, limit, wanted).await?;
        Ok(found.into_iter().map(|permit| self.with_current_state(permit.approval)).collect())
    }

    /// One question.
    ///
    /// # Errors
    /// When the store does not answer, or the record cannot be read.
    pub async fn approval(&self, tenant: &Tenant, id: ApprovalId) -> Result<Option<Approval>, StoreError> {
        let found = self.engine.approvals.find(tenant, id).await?;
        Ok(found.map(|permit| self.with_current_state(permit.approval)))
    }

    /// Answers a question. The call that waits goes on; one that could not wait goes on when it is made again.
    ///
    /// # Errors
    /// When there is no such question or it was answered before; when the tool has changed since; when edited arguments
    /// do not fit the tool; when a rule forbids the call by now; when the store does not answer. A no is always taken.
    pub async fn resolve_approval(
        &self,
        tenant: &Tenant,
        id: ApprovalId,
        answer: Answer,
    ) -> Result<Approval, ApprovalError> {
        let approvals = &self.engine.approvals;
        let asked = approvals.find(tenant, id).await?.ok_or(ApprovalError::Unknown(id))?;
        let now = self.now();
        match asked.approval.state_at(now) {
            ApprovalState::Pending => {}
            state => return Err(ApprovalError::Resolved(state)),
        }
        let answer = Answer { at: now, ..answer };
        let (edits, gives) = (answer.outcome == ApprovalOutcome::ModifyWithEditor, answer.arguments.is_some());
        if edits != gives {
            return Err(ApprovalError::Answer("arguments belong to `modify_with_editor`, and to nothing else"));
        }
        let mut approval = asked.approval.clone();
        let grant = if answer.outcome == ApprovalOutcome::Cancel {
            approval.state = ApprovalState::Denied;
            None
        } else {
            approval.state = ApprovalState::Approved;
            let tool = self.find_unchanged_tool(&approval)?;
            let was = self.original_arguments(tenant, &approval).await?;
            check_answer(&tool, &approval, &answer, was.as_ref().unwrap_or(&approval.arguments))?;
            let covers =
                GrantScope::from_outcome(answer.outcome, &approval, &tool.definition).map_err(ApprovalError::Answer)?;
            covers.map(|covers| {
                let key = covers.key(tenant, &approval.rule);
                let tools = self.tools_in_scope(&covers, &tool);
                let tools: Vec<_> = tools.iter().map(|tool| tool.version()).collect();
                let grant = Grant::new(&key, covers, &approval, &answer, &tools);
                (key, grant)
            })
        };
        // A yes must be used within the time there was to give it.
        approval.expires_at = now + approval.expires_at.since(approval.asked_at);
        approval.answer = Some(answer);
        approvals.answer(asked, approval, grant).await.map(|approval| self.with_current_state(approval))
    }

    /// What people have allowed for good.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn grants(&self, tenant: &Tenant) -> Result<Vec<Grant>, StoreError> {
        Ok(self.engine.approvals.grants(tenant).await?.into_iter().map(|(_, grant)| grant).collect())
    }

    /// Takes back what was allowed for good: the next call asks again.
    ///
    /// # Errors
    /// When there is no such grant, or the store does not answer.
    pub async fn revoke_grant(&self, tenant: &Tenant, id: &str) -> Result<Grant, ApprovalError> {
        let all = self.engine.approvals.grants(tenant).await?;
        let found = all.into_iter().find(|(_, grant)| grant.id == id);
        let (key, grant) = found.ok_or_else(|| ApprovalError::UnknownGrant(id.into()))?;
        self.engine.approvals.revoke(key).await?;
        Ok(grant)
    }

    /// The arguments as the caller wrote them, for rules, and for a person who edits them without having seen what is secret. Known
    /// while the call is open; a question itself has no secrets.
    async fn original_arguments(&self, tenant: &Tenant, approval: &Approval) -> Result<Option<Value>, StoreError> {
        let record = self.unredacted_record(tenant, approval.call_id).await?;
        Ok(record.filter(|record| record.outcome.is_none()).map(|record| record.arguments))
    }

    fn with_current_state(&self, mut approval: Approval) -> Approval {
        approval.state = approval.state_at(self.now());
        approval.binding.clear();
        approval.digest.clear();
        approval.without_secrets(&self.engine.services.redactor)
    }

    /// The tool, if it is still the one the question was about.
    fn find_unchanged_tool(&self, approval: &Approval) -> Result<Arc<Tool>, ApprovalError> {
        let same =
            self.get(&approval.tool).filter(|tool| current_binding(approval, tool.version()) == approval.binding);
        same.ok_or_else(|| ApprovalError::ToolChanged(approval.tool.clone()))
    }

    /// The tools a standing yes holds for.
    fn tools_in_scope(&self, covers: &GrantScope, tool: &Arc<Tool>) -> Vec<Arc<Tool>> {
        let GrantScope::Server { server } = covers else { return vec![tool.clone()] };
        let from_there = |tool: &Arc<Tool>| tool.definition.origin.as_ref().is_some_and(|it| it.source == *server);
        self.list(&ToolFilter::default()).into_iter().filter(from_there).collect()
    }
}

/// Whether edited arguments fit the tool, and no rule that holds now forbids the call. `was` is what was asked about.
fn check_answer(tool: &Tool, approval: &Approval, answer: &Answer, was: &Value) -> Result<(), ApprovalError> {
    let redactor = &tool.services.redactor;
    let mut edited = answer.arguments.clone();
    if let Some(edited) = &mut edited {
        if !redactor.restore(edited, was) {
            return Err(ApprovalError::Answer(
                "`[redacted]` may stay where it was, for what is not shown; elsewhere write the value itself",
            ));
        }
        let written = answer.arguments.as_ref().unwrap_or(&Value::Null);
        let found = tool.schema.check(edited).err().unwrap_or_default();
        let problems = redact_problems(redactor, (written, edited), found);
        if !problems.is_empty() {
            return Err(ApprovalError::Arguments { tool: approval.tool.clone(), problems });
        }
    }
    // A rule about what is not known here cannot be asked; the door asks it when the call comes.
    let mut arguments = edited.unwrap_or_else(|| was.clone());
    redactor.remove_redacted(&mut arguments);
    match tool.gate.decide(&tool.definition, &arguments, &approval.caller) {
        Verdict::Deny(reason) => Err(ApprovalError::Forbidden(reason)),
        Verdict::Allow | Verdict::Ask(_) => Ok(()),
    }
}

/// What is wrong with arguments, as a person wrote them and with what is secret put back, for that person, who was not shown it. What
/// could not be put back cannot be judged here: the door looks at it once more when the call comes.
fn redact_problems(
    redactor: &Redactor,
    (written, arguments): (&Value, &Value),
    problems: Vec<Problem>,
) -> Vec<Problem> {
    let tell = |mut problem: Problem| {
        let names = problem.pointer.split('/').skip(1);
        let under_secret =
            names.into_iter().any(|name| redactor.is_secret(&name.replace("~1", "/").replace("~0", "~")));
        let is_hidden = |value: &Value| {
            value.pointer(&problem.pointer).is_some_and(|it| redactor.contains_redacted(it, under_secret))
        };
        if is_hidden(arguments) {
            return None;
        }
        // Below a secret that was put back stands nothing that the person wrote.
        let is_known = written.pointer(&problem.pointer).is_some() && !is_hidden(written);
        if !is_known && arguments.pointer(&problem.pointer).is_some() {
            (problem.detail, problem.suggestion) = ("does not fit with what is not shown".into(), None);
        }
        Some(problem)
    };
    problems.into_iter().filter_map(tell).collect()
}

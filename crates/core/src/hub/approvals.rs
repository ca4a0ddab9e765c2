//! The front door for people who answer questions about calls, and for what they have allowed for good.

use std::sync::Arc;

use super::ToolHub;
use crate::{
    approvals::{Answer, Approval, ApprovalError, ApprovalOutcome, ApprovalState, Covers, Grant, binding_now},
    backend::StoreError,
    ids::{ApprovalId, Tenant},
    policy::Verdict,
    registry::{Filter, Tool},
};

impl ToolHub {
    /// The questions of a tenant's calls, the oldest first; only those in this state, where one is named.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn approvals(&self, tenant: &Tenant, state: Option<ApprovalState>) -> Result<Vec<Approval>, StoreError> {
        let all = self.engine.approvals.of_tenant(tenant).await?;
        let all = all.into_iter().map(|permit| self.as_it_stands(permit.approval));
        Ok(all.filter(|approval| state.is_none_or(|wanted| approval.state == wanted)).collect())
    }

    /// One question.
    ///
    /// # Errors
    /// When the store does not answer, or the record cannot be read.
    pub async fn approval(&self, tenant: &Tenant, id: ApprovalId) -> Result<Option<Approval>, StoreError> {
        let found = self.engine.approvals.find(tenant, id).await?;
        Ok(found.map(|permit| self.as_it_stands(permit.approval)))
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
            let tool = self.as_asked_about(&approval)?;
            fits(&tool, &approval, &answer)?;
            let covers = Covers::by(answer.outcome, &approval, &tool).map_err(ApprovalError::Answer)?;
            covers.map(|covers| {
                let key = covers.key(tenant, &approval.rule);
                let tools = self.covered(&covers, &tool);
                let tools: Vec<&Tool> = tools.iter().map(AsRef::as_ref).collect();
                let grant = Grant::given(&key, covers, &approval, &answer, &tools);
                (key, grant)
            })
        };
        // A yes must be used within the time there was to give it.
        approval.expires_at = now + approval.expires_at.since(approval.asked_at);
        approval.answer = Some(answer);
        approvals.answer(asked, approval, grant).await.map(|approval| self.as_it_stands(approval))
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

    fn as_it_stands(&self, mut approval: Approval) -> Approval {
        approval.state = approval.state_at(self.now());
        approval.binding.clear();
        approval.digest.clear();
        approval.without_secrets(&self.engine.services.redactor)
    }

    /// The tool, if it is still the one the question was about.
    fn as_asked_about(&self, approval: &Approval) -> Result<Arc<Tool>, ApprovalError> {
        let same = self.get(&approval.tool).filter(|tool| binding_now(approval, tool) == approval.binding);
        same.ok_or_else(|| ApprovalError::ToolChanged(approval.tool.clone()))
    }

    /// The tools a standing yes holds for.
    fn covered(&self, covers: &Covers, tool: &Arc<Tool>) -> Vec<Arc<Tool>> {
        let Covers::Server { server } = covers else { return vec![tool.clone()] };
        let from_there = |tool: &Arc<Tool>| tool.definition.origin.as_ref().is_some_and(|it| it.source == *server);
        self.list(&Filter::default()).into_iter().filter(from_there).collect()
    }
}

/// Whether edited arguments fit the tool, and no rule that holds now forbids the call.
fn fits(tool: &Tool, approval: &Approval, answer: &Answer) -> Result<(), ApprovalError> {
    if let Some(mut edited) = answer.arguments.clone()
        && !tool.services.redactor.put_back(&mut edited, &approval.arguments)
    {
        return Err(ApprovalError::Answer(
            "`[redacted]` may stay where it was, for what is not shown; elsewhere write the value itself",
        ));
    }
    if let Some(Err(problems)) = answer.arguments.as_ref().map(|edited| tool.schema.check(edited)) {
        return Err(ApprovalError::Arguments { tool: approval.tool.clone(), problems });
    }
    let arguments = answer.arguments.as_ref().unwrap_or(&approval.arguments);
    match tool.gate.decide(&tool.definition, arguments, &approval.caller) {
        Verdict::Deny(reason) => Err(ApprovalError::Forbidden(reason)),
        Verdict::Allow | Verdict::Ask(_) => Ok(()),
    }
}

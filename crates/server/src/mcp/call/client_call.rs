//! A call as the request of its client describes it, and what its outcome becomes.

use rmcp::{
    ErrorData,
    model::{CallToolResponse, CallToolResult, ContentBlock},
};
use serde_json::{Map, Value};
use toolhub_core::{ApprovalReservation, ApprovalReuse, InputKind, Outcome, Tool, ids::ThreadId};

use super::super::{
    approvals,
    interactive_calls::ResumeKey,
    request::{McpContext, McpRequest},
    result,
};

/// A call of a client, as its request describes it.
pub(super) struct ClientCall<'a> {
    pub(super) request: &'a McpRequest,
    pub(super) context: &'a McpContext,
    pub(super) tool: &'a Tool,
    pub(super) arguments: Value,
    pub(super) thread: Option<ThreadId>,
    /// Whether the client named no thread.
    pub(super) is_minted: bool,
    /// What the client can be asked for.
    pub(super) accepted: Vec<InputKind>,
    /// Answers that came with the call, before its tool has asked, by key.
    pub(super) early_answers: Map<String, Value>,
    /// Whether its user may approve the call in a form.
    pub(super) may_ask: bool,
    /// The approval that its user decides about, kept from identical calls.
    pub(super) own_approval: Option<ApprovalReservation>,
    /// Whether the client looks up calls that take long.
    pub(super) may_be_task: bool,
}

impl ClientCall<'_> {
    /// What a request must repeat to go on with the call after it asked its caller.
    pub(super) fn resume_key(&self) -> ResumeKey {
        ResumeKey::new(&self.request.principal, self.named_thread(), &self.tool.definition.name, &self.arguments)
    }

    /// Which approvals of identical calls it may use: the answer of a form counts for the call that it was shown for.
    pub(super) fn approval_reuse(&self) -> ApprovalReuse {
        match &self.own_approval {
            Some(own) => ApprovalReuse::Only(own.id()),
            None if self.may_ask => ApprovalReuse::Answered,
            None => ApprovalReuse::All,
        }
    }

    /// The thread, if the client named it.
    fn named_thread(&self) -> Option<&ThreadId> {
        self.thread.as_ref().filter(|_| !self.is_minted)
    }

    /// What the state of its approval is bound to.
    pub(super) fn binding(&self) -> String {
        approvals::binding(self.request, self.tool, self.named_thread(), &self.arguments)
    }

    pub(super) fn result(&self, outcome: &Outcome) -> Result<CallToolResponse, ErrorData> {
        self.complete(outcome).map(CallToolResponse::Complete)
    }

    fn complete(&self, outcome: &Outcome) -> Result<CallToolResult, ErrorData> {
        result::of(outcome, Some(self.tool), self.request, self.is_minted)
    }

    /// The result of a call whose user was asked to approve it and did not decide.
    pub(super) fn undecided(&self, outcome: &Outcome, reason: &str) -> Result<CallToolResponse, ErrorData> {
        let mut result = self.complete(outcome)?;
        result.content.push(ContentBlock::text(reason));
        Ok(CallToolResponse::Complete(result))
    }
}

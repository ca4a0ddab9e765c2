//! Approvals by a form in the client.
//!
//! In: a call that needs approval, and a client whose user may give it. Out: the form, and what its answer decides. In the modern era
//! the client keeps a sealed state between the two, which opens for the same caller, thread, tool and arguments only.

use std::{sync::Arc, time::Duration};

use rmcp::model::ServerRequest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use toolhub_core::{
    Answer, Approval, ApprovalError, ApprovalOutcome, InputKind, InputRequest, Tool, ToolHub,
    backend::StoreError,
    clock::Timestamp,
    digest,
    hidden_chars::needs_escape,
    ids::{ApprovalId, ThreadId},
};

use super::request::McpRequest;
use crate::{audit::Audit, scope::Scope, settings::McpApproval};

/// How long a sealed state is accepted.
const STATE_LIFETIME: Duration = Duration::from_secs(10 * 60);
/// Largest size of arguments in a form. Longer ones are read on the page of the approval: what is not shown is not approved.
const MAX_SHOWN_ARGUMENTS: usize = 16 << 10;
/// The key of the form among the requests of a result.
pub(super) const FORM_KEY: &str = "approval";

/// `_meta` key of a form about an approval.
const FORM_META: &str = "dev.toolhub/approval";

/// Whether a request to a client is a form about an approval.
pub(super) fn is_form(request: &ServerRequest) -> bool {
    let ServerRequest::CustomRequest(request) = request else { return false };
    request.params.as_ref().is_some_and(|params| !params["_meta"][FORM_META].is_null())
}

/// Asks users of MCP clients.
pub(super) struct ApprovalForms {
    pub(super) hub: ToolHub,
    pub(super) audit: Arc<Audit>,
    pub(super) mode: McpApproval,
}

/// What a client keeps while its user decides.
#[derive(Serialize, Deserialize)]
pub(super) struct SealedApproval {
    pub(super) approval: ApprovalId,
    /// The thread of the call, also if the hub chose it.
    pub(super) thread: Option<ThreadId>,
    expires_at: Timestamp,
}

/// What the user did.
pub(super) enum Decision {
    /// The approval is decided: the same call made again uses it.
    Decided,
    /// The form was closed, or what it says cannot be accepted, for this reason. The approval is still pending.
    Undecided(String),
    /// The approval had been decided before.
    TooLate,
}

impl ApprovalForms {
    /// Whether the user of this client may be asked: the client shows forms, and its key may decide approvals.
    pub(super) fn may_ask(&self, request: &McpRequest, accepted: &[InputKind]) -> bool {
        self.mode == McpApproval::Elicit
            && accepted.contains(&InputKind::Form)
            && request.principal.has_scope(Scope::ApprovalsWrite)
    }

    /// The form about an approval; `None` if it cannot show the whole call.
    pub(super) fn form(&self, approval: &Approval, tool: &Tool) -> Option<InputRequest> {
        let arguments = shown(&approval.arguments)?;
        let has_server = tool.definition.origin.is_some();
        let choices: Vec<_> = CHOICES
            .iter()
            .filter(|(outcome, _)| match outcome {
                ApprovalOutcome::ProceedAlways => approval.thread.is_some(),
                ApprovalOutcome::ProceedAlwaysServer => has_server,
                _ => true,
            })
            .collect();
        let schema = json!({
            "type": "object",
            "properties": {
                "decision": {
                    "type": "string", "title": "Decision",
                    "enum": choices.iter().map(|(outcome, _)| outcome).collect::<Vec<_>>(),
                    "enumNames": choices.iter().map(|(_, label)| label).collect::<Vec<_>>(),
                },
                "arguments": {
                    "type": "string", "title": "Changed arguments",
                    "description": "Only with `modify_with_editor`: the arguments to use instead, as JSON.",
                },
                "message": {
                    "type": "string", "title": "Message", "description": "Only with `cancel`: a message to the model.",
                },
            },
            "required": ["decision"],
        });
        let mut message = format!("May `{}` be called?\nArguments: {arguments}", approval.tool);
        message.push_str(&format!("\nRule: {}", approval.rule));
        if let Some(reason) = &approval.reason {
            message.push_str(&format!("\nReason: {reason}"));
        }
        if let Some(thread) = &approval.thread {
            message.push_str(&format!("\nThread: {thread}"));
        }
        let meta = json!({FORM_META: approval.id});
        let params = json!({"mode": "form", "message": message, "requestedSchema": schema, "_meta": meta});
        Some(InputRequest::new(InputKind::Form, params))
    }

    /// Decides an approval by the answer of a form.
    pub(super) async fn decide(
        &self,
        id: ApprovalId,
        form: &Value,
        request: &McpRequest,
    ) -> Result<Decision, StoreError> {
        let answer = match self.read_answer(form, request) {
            Ok(answer) => answer,
            Err(reason) => return Ok(Decision::Undecided(reason)),
        };
        let decided = self.hub.resolve_approval(&request.principal.tenant, id, answer).await;
        let decision = match decided {
            Ok(_) => Decision::Decided,
            Err(ApprovalError::Unknown(_) | ApprovalError::Resolved(_)) => return Ok(Decision::TooLate),
            Err(ApprovalError::Store(error)) => return Err(error),
            Err(error) => return Ok(Decision::Undecided(error.to_string())),
        };
        self.audit.record(request.audit_entry("approval.answer", id, self.hub.now())).await;
        Ok(decision)
    }

    fn read_answer(&self, form: &Value, request: &McpRequest) -> Result<Answer, String> {
        #[derive(Deserialize)]
        struct Content {
            decision: ApprovalOutcome,
            #[serde(default)]
            arguments: Option<String>,
            #[serde(default)]
            message: Option<String>,
        }
        let by = request.principal.caller.clone();
        match form["action"].as_str() {
            Some("accept") => {}
            Some("decline") => return Ok(Answer::new(ApprovalOutcome::Cancel, by)),
            _ => return Err("The user closed the form without a decision.".into()),
        }
        let content = Content::deserialize(&form["content"]);
        let content = content.map_err(|error| format!("The answer of the form cannot be read: {error}."))?;
        let mut answer = Answer::new(content.decision, by);
        let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        match content.decision {
            ApprovalOutcome::ModifyWithEditor => {
                let arguments =
                    serde_json::from_str::<Map<String, Value>>(&given(content.arguments).unwrap_or_default());
                let arguments = arguments.map_err(|error| format!("The changed arguments are not JSON: {error}."))?;
                answer.arguments = Some(Value::Object(arguments));
            }
            ApprovalOutcome::Cancel => answer.message = given(content.message),
            _ => {}
        }
        Ok(answer)
    }

    /// The state that a client keeps while its user decides.
    pub(super) fn seal(&self, approval: &Approval, binding: &str) -> String {
        let expires_at = self.hub.now() + STATE_LIFETIME;
        let state = SealedApproval { approval: approval.id, thread: approval.thread.clone(), expires_at };
        self.hub.sealer().seal_token(&json!(state).to_string(), binding)
    }

    /// Opens a state; `None` if it is too old, was changed, or belongs to another call.
    pub(super) fn open(&self, state: &str, binding: &str) -> Option<SealedApproval> {
        let opened = self.hub.sealer().open_token(state, binding)?;
        let opened: SealedApproval = serde_json::from_str(&opened).ok()?;
        (self.hub.now() < opened.expires_at).then_some(opened)
    }
}

/// Whether the answer of a form allows the call.
pub(super) fn allows(form: &Value) -> bool {
    form["action"] == "accept" && form["content"]["decision"] != "cancel"
}

/// What a state is bound to: who calls which tool with which arguments. `thread`: the one that the client names.
pub(super) fn binding(request: &McpRequest, tool: &Tool, thread: Option<&ThreadId>, arguments: &Value) -> String {
    let principal = &request.principal;
    json!([
        "mcp approval",
        principal.tenant,
        principal.caller,
        thread,
        tool.definition.name,
        digest::hash_json(arguments)
    ])
    .to_string()
}

/// The decisions that a form offers.
const CHOICES: [(ApprovalOutcome, &str); 6] = [
    (ApprovalOutcome::ProceedOnce, "Allow this call"),
    (ApprovalOutcome::ProceedAlways, "Allow this tool in this thread"),
    (ApprovalOutcome::ProceedAlwaysTool, "Allow this tool in all threads"),
    (ApprovalOutcome::ProceedAlwaysServer, "Allow all tools of its server"),
    (ApprovalOutcome::ModifyWithEditor, "Allow with changed arguments"),
    (ApprovalOutcome::Cancel, "Do not allow"),
];

/// Arguments as a form shows them; `None` if they are too long for it.
pub(super) fn shown(arguments: &Value) -> Option<String> {
    Some(visible(&arguments.to_string())).filter(|text| text.len() <= MAX_SHOWN_ARGUMENTS)
}

/// A text in which nothing is invisible.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match needs_escape(c) {
            true => shown.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            false => shown.push(c),
        }
    }
    shown
}

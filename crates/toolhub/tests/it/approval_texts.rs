//! What models and operators read about rules, approvals and grants.

use std::time::Duration;

use toolhub::{ApprovalState, HubBuilder, prelude::*, status::Language, testing::scripted};

async fn hub_with(rules: [Rule; 2]) -> ToolHub {
    let builder = ToolHub::builder().tool(scripted("pay", []).0).tool(scripted("wipe", []).0);
    rules.into_iter().fold(builder, HubBuilder::rule).build().await.unwrap()
}

async fn model_text(hub: &ToolHub, tool: &str) -> String {
    hub.call(tool, json!({})).thread("t1").no_wait().await.model_text().into_owned()
}

#[tokio::test]
async fn a_rules_reason_reaches_the_model_unless_the_rule_is_private() {
    let rules =
        || [Rule::ask("pay").reason("large sums need a second look"), Rule::deny("wipe").reason("backups first.")];
    let hub = hub_with(rules()).await;
    assert!(model_text(&hub, "pay").await.contains("Reason: large sums need a second look."));
    assert_eq!(model_text(&hub, "wipe").await, "This call is not allowed: backups first. Do not try it again.");

    let hub = hub_with(rules().map(Rule::private)).await;
    assert!(!model_text(&hub, "pay").await.contains("second look"));
    assert_eq!(model_text(&hub, "wipe").await, "This call is not allowed. Do not try it again.");
    let outcome = hub.call("wipe", json!({})).await;
    assert!(outcome.error.unwrap().operator.contains("backups first"), "people read it");
    let pending = hub.approvals(&Tenant::default(), Some(ApprovalState::Pending)).await.unwrap();
    assert_eq!(pending[0].reason.as_deref(), Some("large sums need a second look"));
}

#[tokio::test]
async fn explain_names_the_grants_that_apply_and_forgets_revoked_ones() {
    let hub = hub_with([Rule::ask("pay"), Rule::ask("wipe")]).await;
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let refused = hub.call("pay", json!({})).thread("t1").no_wait().await.error.unwrap();
    let answer = Answer::new(ApprovalOutcome::ProceedAlways, Caller::new("boss").unwrap());
    hub.resolve_approval(&tenant, refused.approval().unwrap(), answer).await.unwrap();
    let explanation = hub.explain("pay", &tenant, &thread).await.unwrap();
    assert_eq!((explanation.grants.len(), explanation.grants[0].rule.as_str()), (1, "ask pay"));
    let text = explanation.text(Language::English);
    assert!(text.contains("Granted in this thread by boss") && text.contains("ask pay"), "{text}");
    assert!(explanation.text(Language::Chinese).contains("boss"));
    let elsewhere = ThreadId::new("t2").unwrap();
    for (tool, thread) in [("pay", &elsewhere), ("wipe", &thread)] {
        assert_eq!(hub.explain(tool, &tenant, thread).await.unwrap().grants, []);
    }
    hub.revoke_grant(&tenant, &explanation.grants[0].id).await.unwrap();
    assert_eq!(hub.explain("pay", &tenant, &thread).await.unwrap().grants, []);
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_an_approval_as_long_as_it_said_and_the_request_stays() {
    let hub = hub_with([Rule::ask("pay"), Rule::ask("wipe")]).await;
    let tenant = Tenant::default();
    let pay = || hub.call("pay", json!({})).thread("t1").no_wait_after(Duration::from_secs(60));
    let outcome = pay().await;
    assert_eq!(outcome.error_kind(), Some(ErrorKind::ApprovalRequired));
    let id = outcome.error.unwrap().approval().unwrap();
    let approval = hub.approval(&tenant, id).await.unwrap().unwrap();
    assert_eq!((approval.state, hub.is_awaited(&tenant, &approval).await.unwrap()), (ApprovalState::Pending, false));
    let answer = Answer::new(ApprovalOutcome::ProceedOnce, Caller::new("boss").unwrap());
    let (outcome, answered) = tokio::join!(pay(), hub.resolve_approval(&tenant, id, answer));
    assert!(answered.is_ok() && outcome.is_success(), "the repeated call uses the same request");
}

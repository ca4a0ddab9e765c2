//! Calls carry the trace context of their caller.

use std::sync::Arc;

use toolhub::{
    Answer, ApprovalOutcome, CallReceipt, TraceContext,
    backend::Memory,
    prelude::*,
    testing::{AssertOutcome, scripted},
};
use toolhub_agent::{AgentBuilder, UserMessage};

use crate::agents::{ScriptedModel, calls_reply, text_reply};

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn trace() -> TraceContext {
    TraceContext::parse(TRACEPARENT).unwrap().with_state("vendor=1")
}

async fn report_trace(_: NoArguments, cx: CallContext) -> Result<Option<(String, Option<String>)>, ToolError> {
    Ok(cx.trace().map(|trace| (trace.traceparent(), trace.state.clone())))
}

#[tokio::test]
async fn the_tool_the_outcome_and_the_record_know_the_trace() {
    let tools =
        [tool("reads", report_trace).read_only(), tool("writes", report_trace), tool("asks", report_trace).confirm()];
    let hub = ToolHub::builder().shared_store(Arc::new(Memory::new())).tools(tools).build().await.unwrap();
    let (tenant, id) = (Tenant::default(), Some(trace().trace_id));
    for name in ["reads", "writes"] {
        let outcome = hub.call(name, json!({})).trace(trace()).await;
        assert_eq!(outcome.assert_success(), &json!([TRACEPARENT, "vendor=1"]), "{name}");
        let record = hub.call_record(&tenant, outcome.id).await.unwrap().unwrap();
        assert_eq!((outcome.trace_id, record.trace_id, record.outcome.unwrap().trace_id), (id, id, id), "{name}");
        let plain = hub.call(name, json!({})).await;
        assert_eq!((plain.trace_id, plain.assert_success()), (None, &json!(null)));
    }
    let refused = hub.call("nobody", json!({})).trace(trace()).await;
    assert_eq!(refused.trace_id, id);
    let CallReceipt::AwaitingApproval { call, approval, .. } =
        hub.call("asks", json!({})).trace(trace()).until_approval().await
    else {
        panic!("no approval pending")
    };
    assert_eq!(hub.call_record(&tenant, call).await.unwrap().unwrap().trace_id, id);
    let answer = Answer::new(ApprovalOutcome::ProceedOnce, Caller::new("boss").unwrap());
    hub.resolve_approval(&tenant, approval, answer).await.unwrap();
    let outcome = loop {
        let record = hub.call_record(&tenant, call).await.unwrap().unwrap();
        match record.outcome {
            Some(outcome) => break outcome,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!((outcome.output, outcome.trace_id), (json!([TRACEPARENT, "vendor=1"]), id));
}

#[tokio::test]
async fn an_answer_given_again_is_told_in_the_trace_that_asks() {
    let hub = ToolHub::builder().tool(scripted("pay", []).0).build().await.unwrap();
    hub.call("pay", json!({})).idempotency_key("k").await.assert_success();
    let replayed = hub.call("pay", json!({})).idempotency_key("k").trace(trace()).await;
    assert_eq!((replayed.replayed, replayed.trace_id), (true, Some(trace().trace_id)));
}

#[tokio::test]
async fn a_message_takes_its_trace_to_the_model_and_to_the_tools_of_its_calls() {
    let hub = ToolHub::builder().tool(tool("look", report_trace)).build().await.unwrap();
    let model = ScriptedModel::new([calls_reply([("look", json!({}))]), text_reply("Seen."), text_reply("Nothing.")]);
    let agent = AgentBuilder::new(model.clone()).build(&hub).await.unwrap();
    let run = agent.invoke(UserMessage { trace: Some(trace()), ..UserMessage::from("Look") }).await.unwrap();
    let record = hub.call_record(&Tenant::default(), run.calls[0].id).await.unwrap().unwrap();
    assert_eq!((run.trace_id, record.trace_id), (Some(trace().trace_id), Some(trace().trace_id)));
    assert_eq!(record.outcome.unwrap().output, json!([TRACEPARENT, "vendor=1"]));
    // Messages in another trace, or in none, are not affected.
    assert_eq!(agent.invoke("And now?").await.unwrap().trace_id, None);
    let prompt: Vec<Option<String>> = model.prompts().into_iter().map(|prompt| prompt.traceparent).collect();
    assert_eq!(prompt, [Some(TRACEPARENT.to_owned()), Some(TRACEPARENT.to_owned()), None]);
}

//! JSON tools, with and without a state, and legacy tools.

use toolhub::{ContextId, JsonReply, dynamic, dynamic_stateful, legacy_stateful, prelude::*, testing::AssertOutcome};

fn schema() -> Value {
    json!({"type": "object", "properties": {"by": {"type": "integer"}}, "additionalProperties": false})
}

async fn step(arguments: Value, _: CallContext) -> Result<JsonReply, ToolError> {
    let total = arguments["state"]["total"].as_i64().unwrap_or(0) + arguments["by"].as_i64().unwrap_or(1);
    Ok(JsonReply::with_state(json!({"total": total}), json!({"total": total})))
}

async fn stored_state(hub: &ToolHub, context: &str) -> Option<Value> {
    let id: ContextId = context.parse().unwrap();
    hub.state().get_state(&Tenant::default(), &id, StateKind::Business).await.unwrap().map(|entry| entry.data)
}

#[tokio::test]
async fn a_json_tool_finds_its_state_among_its_arguments_and_gives_it_back_beside_its_output() {
    let hub = ToolHub::builder().tool(dynamic_stateful("step", "steps", schema(), step)).build().await.unwrap();
    hub.call("step", json!({"by": 2})).thread("t").await.assert_success();
    let outcome = hub.call("step", json!({"by": 3})).thread("t").await;
    assert_eq!(outcome.assert_success(), &json!({"total": 5}));
    assert_eq!(stored_state(&hub, "t/steps").await, Some(json!({"total": 5})));
    // A caller cannot inject a state.
    hub.call("step", json!({"state": {"total": 9}})).thread("t").await.assert_error(ErrorKind::ArgumentsInvalid);
    // Nor does the journal record the state among the arguments.
    let record = hub.call_record(&Tenant::default(), outcome.id).await.unwrap().unwrap();
    assert_eq!(record.arguments, json!({"by": 3}));
}

#[tokio::test]
async fn the_argument_of_the_state_may_have_another_name_or_be_left_out() {
    let look = async |arguments: Value, _: CallContext| Ok(JsonReply::with_state(arguments, json!({"seen": true})));
    let hub = ToolHub::builder()
        .tool(dynamic_stateful("named", "a", schema(), look).state_parameter_name("memory"))
        .tool(dynamic_stateful("without", "b", schema(), look).state_injection(false))
        .build()
        .await
        .unwrap();
    for _ in 0..2 {
        hub.call("named", json!({})).thread("t").await.assert_success();
        hub.call("without", json!({})).thread("t").await.assert_success();
    }
    let named = hub.call("named", json!({})).thread("t").await;
    assert_eq!(named.assert_success(), &json!({"memory": {"seen": true}}));
    assert_eq!(hub.call("without", json!({})).thread("t").await.assert_success(), &json!({}));
    assert_eq!(stored_state(&hub, "t/b").await, Some(json!({"seen": true})));
}

#[tokio::test]
async fn a_parameter_where_the_state_would_go_is_refused_at_registration() {
    let hub = ToolHub::builder().build().await.unwrap();
    let taken = || json!({"type": "object", "properties": {"state": {"type": "string"}}});
    let error = hub.register(dynamic_stateful("step", "steps", taken(), step)).unwrap_err().to_string();
    assert!(error.contains("a parameter `state`") && error.contains("state_parameter_name"), "{error}");
    hub.register(dynamic_stateful("step", "steps", taken(), step).state_parameter_name("memory")).unwrap();
}

#[tokio::test]
async fn a_result_member_called_state_stays_in_the_result() {
    #[derive(Default, Serialize, Deserialize)]
    struct Count(u64);
    impl ToolState for Count {
        const NAME: &'static str = "count";
    }
    async fn typed(_: NoArguments, mut count: State<Count>) -> Result<Value, ToolError> {
        count.0 += 1;
        Ok(json!({"state": "Bavaria", "count": count.0}))
    }
    let plain = async |_: Value, _: CallContext| Ok(json!({"state": "Bavaria"}));
    let stateful = async |_: Value, _: CallContext| Ok(JsonReply::from(json!({"state": "Bavaria"})));
    let hub = ToolHub::builder()
        .tool(tool("typed", typed))
        .tool(dynamic("plain", schema(), plain))
        .tool(dynamic_stateful("stateful", "places", schema(), stateful))
        .build()
        .await
        .unwrap();
    for name in ["typed", "plain", "stateful"] {
        let outcome = hub.call(name, json!({})).thread("t").await;
        assert_eq!(outcome.assert_success()["state"], "Bavaria", "{name}");
    }
    assert_eq!(stored_state(&hub, "t/places").await, None);
}

#[tokio::test]
async fn an_old_tool_gives_its_state_back_inside_its_result() {
    let old = |params: Value, state: Value| {
        let thoughts = state["thoughts"].as_u64().unwrap_or(0) + 1;
        match params["fail"].as_bool() {
            Some(true) => json!({"ok": false, "state": "broken"}),
            _ => json!({"ok": true, "thoughts": thoughts, "state": {"thoughts": thoughts}}),
        }
    };
    let hub = ToolHub::builder().tool(legacy_stateful("think", old)).build().await.unwrap();
    hub.call("think", json!({})).thread("t").await.assert_success();
    let outcome = hub.call("think", json!({})).thread("t").await;
    assert_eq!(outcome.assert_success(), &json!({"ok": true, "thoughts": 2}));
    assert_eq!(stored_state(&hub, "t/think").await, Some(json!({"thoughts": 2})));
    // An invalid state is an error, and nothing is changed.
    let outcome = hub.call("think", json!({"fail": true})).thread("t").await;
    outcome.assert_effect(Effect::Done).assert_error(ErrorKind::ToolError);
    assert!(outcome.error.unwrap().operator.contains("a state is a JSON object"));
    assert_eq!(stored_state(&hub, "t/think").await, Some(json!({"thoughts": 2})));
}

#[tokio::test]
async fn members_that_a_legacy_tool_does_not_return_stay_in_its_state() {
    let remember = |params: Value, _: Value| match params["key"].as_str() {
        Some(key) => Ok(json!({"state": {key: params["value"]}})),
        None => Err(ToolError::new("no key was given")),
    };
    let hub = ToolHub::builder().tool(legacy_stateful("remember", remember)).build().await.unwrap();
    for (key, value) in [("a", json!(1)), ("b", json!({"x": 1})), ("b", json!({"y": 2})), ("c", json!(null))] {
        hub.call("remember", json!({"key": key, "value": value})).thread("t").await.assert_success();
    }
    let expected = json!({"a": 1, "b": {"y": 2}, "c": null});
    assert_eq!(stored_state(&hub, "t/remember").await, Some(expected.clone()));
    let outcome = hub.call("remember", json!({})).thread("t").await;
    outcome.assert_error(ErrorKind::ToolError);
    assert_eq!(outcome.error.unwrap().operator, "no key was given");
    assert_eq!(stored_state(&hub, "t/remember").await, Some(expected));
}

#[tokio::test]
async fn whatever_the_arguments_are_a_json_tool_has_its_state_or_is_not_called() {
    for schema in [json!({}), json!(true), json!({"type": "object"}), json!({"type": ["object", "null"]})] {
        let tool = dynamic_stateful("step", "steps", schema.clone(), step);
        let Ok(hub) = ToolHub::builder().tool(tool).build().await else { continue };
        for arguments in [json!(null), json!([]), json!(5), json!({})] {
            let before = stored_state(&hub, "t/steps").await.map_or(0, |state| state["total"].as_i64().unwrap());
            let outcome = hub.call("step", arguments.clone()).thread("t").await;
            match outcome.error_kind() {
                None => assert_eq!(outcome.output["total"], before + 1, "{schema} {arguments}"),
                Some(kind) => assert_eq!(kind, ErrorKind::ArgumentsInvalid, "{schema} {arguments}"),
            }
        }
    }
}

#[tokio::test]
async fn a_parameter_that_the_schema_has_somewhere_else_is_found_too() {
    let hub = ToolHub::builder().build().await.unwrap();
    let part = json!({"properties": {"state": {"type": "string"}}, "type": "object"});
    for schema in [
        json!({"type": "object", "required": ["state"]}),
        json!({"type": "object", "allOf": [part]}),
        json!({"$defs": {"a": part}, "$ref": "#/$defs/a", "type": "object"}),
    ] {
        let error = hub.register(dynamic_stateful("step", "steps", schema.clone(), step)).map(|_| ());
        assert!(error.is_err(), "{schema}");
    }
}

#[tokio::test]
async fn saying_that_the_state_is_injected_does_not_rename_the_argument() {
    let look = async |arguments: Value, _: CallContext| Ok(JsonReply::from(arguments));
    let tool = dynamic_stateful("look", "a", schema(), look).state_parameter_name("memory").state_injection(true);
    let hub = ToolHub::builder().tool(tool).build().await.unwrap();
    assert_eq!(hub.call("look", json!({})).thread("t").await.assert_success(), &json!({"memory": {}}));
}

#[tokio::test]
async fn a_state_that_is_given_back_as_it_was_is_no_new_version() {
    let same = async |_: Value, _: CallContext| Ok(JsonReply::with_state(json!(1), json!({"b": 1, "a": [2]})));
    let hub = ToolHub::builder().tool(dynamic_stateful("same", "same", schema(), same)).build().await.unwrap();
    for _ in 0..3 {
        hub.call("same", json!({})).thread("t").await.assert_success();
    }
    let id: ContextId = "t/same".parse().unwrap();
    let entry = hub.state().get_state(&Tenant::default(), &id, StateKind::Business).await.unwrap().unwrap();
    assert_eq!(entry.version, 1);
}

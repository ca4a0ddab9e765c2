//! Results of calls, from their JSON text to replies.

use proptest::prelude::*;
use serde_json::json;
use toolhub_core::{Effect, ErrorKind};

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "cases read best as plain values")]
fn read_value(result: Value, expected: &ExpectedResult) -> Result<CallResult, ToolError> {
    read_result(&result.to_string(), expected, complete)
}

#[track_caller]
fn reply_of(result: Value) -> Reply {
    match read_value(result, &ExpectedResult::default()).unwrap() {
        CallResult::Complete { reply, mismatch: None } => reply,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn error_of(text: &str, read_only: bool) -> ToolError {
    read_result(text, &ExpectedResult { read_only, ..ExpectedResult::default() }, complete).unwrap_err()
}

/// The content as the server sent it, and the output.
#[track_caller]
fn check(result: Value, output: Value, content: Value) {
    let reply = reply_of(result);
    assert_eq!((reply.output, serde_json::to_value(reply.content).unwrap()), (output, content));
}

#[test]
fn one_text_is_the_output() {
    check(json!({"content": [{"type": "text", "text": "hi"}]}), json!("hi"), json!([]));
    check(json!({"content": [{"type": "text", "text": "hi"}], "isError": false}), json!("hi"), json!([]));
    check(json!({"content": [], "resultType": "complete", "_meta": {}}), json!(null), json!([]));
    check(json!({}), json!(null), json!([]));
    check(json!({"content": {"type": "text", "text": "hi"}}), json!("hi"), json!([]));
}

#[test]
fn every_kind_of_block_passes() {
    let blocks = json!([
        {"type": "text", "text": "a"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a", "name": "a", "title": "A", "description": "An a",
         "mimeType": "text/plain", "size": 3},
        {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "text/plain", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///c", "blob": "aGk="}},
        {"type": "text", "text": "b"},
    ]);
    check(json!({ "content": blocks }), json!("a\nb"), blocks.clone());
    let mut annotated = blocks.clone();
    annotated[0]["annotations"] = json!({"audience": ["unknown"], "priority": "high"});
    annotated[1]["_meta"] = json!([1]);
    annotated[1]["data"] = json!("aG\r\nk=");
    annotated[2]["data"] = json!("aGk");
    check(json!({ "content": annotated }), json!("a\nb"), blocks);
}

#[test]
fn structured_content_is_the_output_and_its_repetition_is_left_out() {
    let output = json!({"temperature": 21.5, "list": [1]});
    let text = json!([{"type": "text", "text": format!("{output:#}")}]);
    check(json!({"structuredContent": output, "content": text}), output.clone(), json!([]));
    let other = json!([{"type": "text", "text": "21.5 degrees"}]);
    check(json!({"structuredContent": output, "content": other}), output.clone(), other);
    check(json!({ "structuredContent": output }), output, json!([]));
    check(json!({"structuredContent": [1], "content": []}), json!([1]), json!([]));
    check(json!({"structuredContent": null, "content": [{"type": "text", "text": "x"}]}), json!("x"), json!([]));
}

#[test]
fn an_odd_block_is_named_and_the_others_pass() {
    let left_out = |text: &str| json!({"type": "text", "text": text});
    check(
        json!({"content": [{"type": "text", "text": "a"}, {"type": "video", "data": "x"}]}),
        json!("a\n1 content block of type `video` was left out: not understood"),
        json!([{"type": "text", "text": "a"}, left_out("1 content block of type `video` was left out: not understood")]),
    );
    for odd in [
        json!({"type": "text"}),
        json!({"type": "text", "text": 7}),
        json!({"type": "image", "data": "no base64!", "mimeType": "image/png"}),
        json!({"type": "image", "data": "aGkha", "mimeType": "image/png"}),
        json!({"type": "image", "data": "aGk="}),
        json!({"type": "image", "data": "aGk=", "mimeType": "png"}),
        json!({"type": "audio", "mimeType": "audio/wav"}),
        json!({"type": "resource_link", "name": "a"}),
        json!({"type": "resource", "resource": {"uri": "file:///a"}}),
        json!({"type": "resource", "resource": {"text": "a"}}),
        json!({"type": "resource"}),
    ] {
        let kind = odd["type"].as_str().unwrap().to_owned();
        let reply = reply_of(json!({"content": [odd]}));
        assert_eq!(reply.output, json!(format!("1 content block of type `{kind}` was left out: not understood")));
    }
    let odd = json!([7, null, {"type": 7}, {"type": "b"}, {"type": "a"}, {"type": "c"}, {"type": "d"}, {"type": "e"}, {"type": "e"}]);
    let text = reply_of(json!({ "content": odd })).output;
    let lines: Vec<&str> = text.as_str().unwrap().lines().collect();
    assert_eq!(lines[0], "3 content blocks without a type were left out: not understood");
    assert_eq!(lines[5], "2 content blocks of other types were left out");
}

#[test]
fn an_error_of_the_tool_is_refused_with_its_text_and_an_unknown_effect() {
    let failed =
        |content: Value| json!({"content": content, "isError": true, "structuredContent": {"code": 7}}).to_string();
    let text = failed(json!([{"type": "text", "text": "no such"}, {"type": "text", "text": "file"}]));
    let error = error_of(&text, false);
    assert_eq!((error.kind, error.effect), (ErrorKind::ToolRefused, Some(Effect::Unknown)));
    assert_eq!((error.model.as_deref(), error.counts()), (Some("no such\nfile"), false));
    assert_eq!(error_of(&text, true).effect, Some(Effect::None));
    assert_eq!(error_of(&failed(json!([])), false).model.as_deref(), Some(r#"{"code":7}"#));
    let without = error_of(r#"{"isError":true,"content":[{"type":"text","text":" "}]}"#, false);
    assert_eq!(without.model.as_deref(), Some("The tool reported an error without a text."));
}

#[test]
fn a_result_that_breaks_the_protocol_is_an_upstream_error_that_quotes_nothing() {
    for (text, cause) in [
        ("", "not JSON"),
        ("{\"content\": [", "not JSON"),
        ("[]", "not an object"),
        ("\"secret\"", "not an object"),
        (r#"{"resultType":"task","task":{"taskId":"1"}}"#, "started a task"),
        (r#"{"task":{"taskId":"1","status":"working"}}"#, "started a task"),
        (r#"{"resultType":"later"}"#, "its type is `later`"),
        (r#"{"resultType":7}"#, "its type is not a text"),
        (r#"{"resultType":"input_required"}"#, "neither"),
        (r#"{"resultType":"input_required","inputRequests":[]}"#, "not an object"),
        (r#"{"resultType":"input_required","requestState":7}"#, "not a text"),
    ] {
        let error = error_of(text, false);
        assert_eq!((error.kind, error.effect, error.model), (ErrorKind::UpstreamError, Some(Effect::Unknown), None));
        assert!(error.operator.contains(cause), "{}", error.operator);
        assert_eq!(error_of(text, true).effect, Some(Effect::None));
    }
}

#[test]
fn a_result_of_too_many_values_does_not_count_against_the_server() {
    let text = format!("{{\"structuredContent\":[{}0]}}", "0,".repeat(100_001));
    let error = error_of(&text, false);
    assert_eq!((error.kind, error.counts(), error.effect), (ErrorKind::ToolError, false, Some(Effect::Unknown)));
    assert!(error.operator.contains("more than 100000 values"), "{}", error.operator);
    let deep = format!("{{\"structuredContent\":{}{}}}", "[".repeat(200), "]".repeat(200));
    assert!(error_of(&deep, false).operator.contains("nested deeper"));
}

#[test]
fn questions_of_the_server_are_kept_as_they_are() {
    let requests = json!({"who": {"method": "elicitation/create", "params": {"message": "?", "odd": [1]}}});
    let result =
        json!({"resultType": "input_required", "inputRequests": requests, "requestState": "abc", "content": 7});
    let asked = read_value(result, &ExpectedResult::default()).unwrap();
    let expected = InputRequired { requests: requests.as_object().unwrap().clone(), request_state: Some("abc".into()) };
    assert_eq!(asked, CallResult::InputRequired(expected));
    let only_state =
        read_value(json!({"resultType": "input_required", "requestState": ""}), &ExpectedResult::default());
    assert!(matches!(only_state.unwrap(), CallResult::InputRequired(asked) if asked.requests.is_empty()));
}

#[test]
fn output_that_does_not_fit_its_schema_passes_and_is_reported_without_its_values() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let expected = ExpectedResult { output: Some(Schema::compile_any(schema).unwrap()), ..ExpectedResult::default() };
    let mismatch = |result: Value| match read_value(result, &expected).unwrap() {
        CallResult::Complete { reply, mismatch } => (reply.output, mismatch),
        other @ CallResult::InputRequired(_) => panic!("{other:?}"),
    };
    assert_eq!(mismatch(json!({"structuredContent": {"n": 1}})), (json!({"n": 1}), None));
    let (output, reason) = mismatch(json!({"structuredContent": {"n": "private"}}));
    assert_eq!(output, json!({"n": "private"}));
    assert_eq!(reason.as_deref(), Some("the output does not fit the schema at `/n`"));
    let (output, reason) = mismatch(json!({"content": [{"type": "text", "text": "x"}]}));
    assert_eq!(output, json!("x"));
    assert!(reason.unwrap().contains("no `structuredContent`"));
    let failed = read_value(json!({"isError": true, "content": []}), &expected);
    assert!(failed.is_err(), "an error needs no output");
}

#[test]
fn secrets_of_the_server_are_masked_except_where_the_server_needs_them() {
    let expected = ExpectedResult { secrets: Arc::new(SecretMask::new(["s3cr3t"])), ..ExpectedResult::default() };
    let read = |result: Value| read_value(result, &expected);
    let text = json!([{"type": "text", "text": "it is s3cr3t"}]);
    let reply = Reply::from(json!("it is ••••"));
    assert_eq!(read(json!({ "content": text })).unwrap(), CallResult::Complete { reply, mismatch: None });
    assert_eq!(read(json!({"content": text, "isError": true})).unwrap_err().model.as_deref(), Some("it is ••••"));
    let asked = json!({"resultType": "input_required", "inputRequests": {"a": {"message": "s3cr3t?"}}, "requestState": "s3cr3t"});
    let CallResult::InputRequired(asked) = read(asked).unwrap() else { panic!("it is a question") };
    assert_eq!(asked.requests["a"], json!({"message": "••••?"}));
    assert_eq!(asked.request_state.as_deref(), Some("s3cr3t"));
}

#[tokio::test]
async fn a_large_result_is_read_off_the_worker() {
    let data = "aGkh".repeat(1 << 20);
    let text = json!({"content": [{"type": "image", "data": data, "mimeType": "image/png"}]}).to_string();
    let CallResult::Complete { reply, .. } = read(text, ExpectedResult::default()).await.unwrap() else { panic!() };
    assert_eq!(reply.content[0].binary().unwrap().0.len(), 4 << 20);
}

fn any_json() -> impl Strategy<Value = Value> {
    let name = "content|type|text|data|mimeType|uri|resource|blob|isError|structuredContent|resultType|inputRequests|requestState|task";
    let text = prop_oneof!["text|image|audio|resource|resource_link|complete|input_required|task", ".{0,6}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.prop_map(Value::from)
    ];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..6)
                .prop_map(|members| members.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #[test]
    fn no_text_breaks_the_reader(value in any_json(), content in any_json(), text in ".{0,40}") {
        let expected = ExpectedResult { output: Schema::compile_any(json!({"type": "object"})).ok(), ..ExpectedResult::default() };
        let _ = read_value(value, &expected);
        let _ = read_value(json!({"content": content}), &expected);
        let _ = read_result(&text, &expected, complete);
    }
}

#[test]
fn anything_but_no_in_is_error_is_an_error() {
    for is_error in [json!(true), json!("yes"), json!(1), json!({})] {
        let result = json!({"content": [{"type": "text", "text": "no such city"}], "isError": is_error});
        let error = error_of(&result.to_string(), false);
        assert_eq!((error.kind, error.model.as_deref()), (ErrorKind::ToolRefused, Some("no such city")), "{error}");
    }
    check(json!({"content": [], "isError": null}), json!(null), json!([]));
}

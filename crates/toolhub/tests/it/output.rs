//! Output beyond the limit: truncated for the model, stored as an artifact.

use toolhub::{
    ids::{ArtifactId, Tenant},
    prelude::*,
    testing::{AssertOutcome, ScriptStep, scripted},
};

async fn call(output: Value) -> (ToolHub, Outcome) {
    let (tool, _) = scripted("dump", [ScriptStep::Return(output)]);
    let hub = ToolHub::builder().tool(tool.read_only()).build().await.unwrap();
    let outcome = hub.call("dump", json!({})).await;
    (hub, outcome)
}

fn artifact(outcome: &Outcome) -> Option<(ArtifactId, String)> {
    outcome.content.iter().find_map(|piece| match piece {
        Content::Artifact { id, mime_type, .. } => Some((id.clone(), mime_type.clone())),
        _ => None,
    })
}

#[tokio::test]
async fn text_up_to_the_limit_is_left_alone() {
    let (_, outcome) = call(json!("é".repeat(25_000))).await;
    assert_eq!(outcome.model_text().chars().count(), 25_000);
    assert!(outcome.content.is_empty());
}

#[tokio::test]
async fn longer_text_is_cut_says_so_and_can_be_fetched_whole_by_its_tenant_only() {
    let full = "天".repeat(30_000);
    let (hub, outcome) = call(json!(full)).await;
    assert_eq!(outcome.assert_success(), &json!(full), "up to a mebibyte the output itself stays complete");
    let (id, mime_type) = artifact(&outcome).expect("the rest was stored");
    let text = outcome.model_text();
    assert!(text.starts_with(&"天".repeat(25_000)));
    assert!(
        text.ends_with(&format!("[5000 more characters; the whole text is kept as artifact {id}]")),
        "{}",
        &text[75_000..]
    );
    assert_eq!(mime_type, "text/plain");
    let stored = hub.artifact(&Tenant::default(), &id).await.unwrap().unwrap();
    assert_eq!((stored.bytes, stored.mime_type), (full.into_bytes(), mime_type));
    assert_eq!(hub.artifact(&Tenant::new("other").unwrap(), &id).await.unwrap(), None);
}

#[tokio::test]
async fn structured_output_over_a_mebibyte_becomes_an_artifact() {
    let rows: Vec<_> = (0..60_000).map(|n| json!({"row": n, "name": "x"})).collect();
    let full = json!(rows);
    let (hub, outcome) = call(full.clone()).await;
    assert_eq!(outcome.assert_success(), &Value::Null);
    let (id, mime_type) = artifact(&outcome).unwrap();
    assert_eq!(mime_type, "application/json");
    let stored = hub.artifact(&Tenant::default(), &id).await.unwrap().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&stored.bytes).unwrap(), full);
    assert!(outcome.model_text().chars().count() < 25_200);
}

#[tokio::test]
async fn a_tool_may_have_a_limit_of_its_own() {
    let (tool, _) = scripted("dump", [ScriptStep::Return(json!("0123456789"))]);
    let hub = ToolHub::builder().tool(tool.read_only().text_limit(4)).build().await.unwrap();
    let outcome = hub.call("dump", json!({})).await;
    assert!(outcome.model_text().starts_with("0123\n\n[6 more characters"), "{}", outcome.model_text());
}

#[tokio::test]
async fn a_long_text_beside_a_large_output_are_both_kept() {
    struct TextAndOutputExecutor;
    impl toolhub::Executor for TextAndOutputExecutor {
        fn execute<'a>(&'a self, _: toolhub::Job<'a>) -> toolhub::BoxFuture<'a, Result<toolhub::Reply, ToolError>> {
            let content = vec![
                Content::text("word ".repeat(6_000)),
                Content::Audio { data: String::new(), mime_type: "a/b".into() },
            ];
            Box::pin(async { Ok(toolhub::Reply { output: json!("n".repeat(2 << 20)), content }) })
        }
    }
    let hub = ToolHub::builder()
        .executor("both", TextAndOutputExecutor)
        .tool(ToolBuilder::new("both", "both").read_only())
        .build()
        .await
        .unwrap();
    let outcome = hub.call("both", json!({})).await;
    let mut stored = Vec::new();
    for piece in &outcome.content {
        if let Content::Artifact { id, .. } = piece {
            stored.push(hub.artifact(&Tenant::default(), id).await.unwrap().unwrap());
        }
    }
    assert_eq!(stored.len(), 2);
    assert_eq!(stored[0].bytes, "word ".repeat(6_000).into_bytes());
    assert_eq!(stored[1].bytes.len(), (2 << 20) + 2);
    assert!(outcome.content.iter().any(|piece| matches!(piece, Content::Audio { .. })), "other content stays");
}

#[tokio::test]
async fn what_cannot_be_kept_says_so() {
    let store = std::sync::Arc::new(crate::faulty_store::FaultyStore::default());
    let (tool, _) = scripted("dump", [ScriptStep::Return(json!("x".repeat(2 << 20)))]);
    let hub = ToolHub::builder().shared_store(store.clone()).tool(tool.read_only()).build().await.unwrap();
    store.unavailable.store(true, std::sync::atomic::Ordering::Release);
    let outcome = hub.call("dump", json!({})).await;
    assert!(outcome.model_text().contains("could not be kept"), "{}", &outcome.model_text()[24_900..]);
}

#[tokio::test]
async fn output_nested_too_deeply_to_be_read_again_is_kept_as_text() {
    let deep = (0..300).fold(json!(1), |inner, _| json!([inner]));
    let (tool, _) = scripted("dump", [ScriptStep::Return(deep)]);
    let hub = ToolHub::builder().tool(tool).build().await.unwrap();
    let outcome = hub.call("dump", json!({})).idempotency_key("k").await;
    assert_eq!(outcome.assert_success(), &Value::Null);
    assert!(outcome.model_text().starts_with("[[["));
    assert!(hub.call("dump", json!({})).idempotency_key("k").await.replayed);
}

/// Calls a tool that returns these blocks.
async fn call_blocks(blocks: Value, limit: impl FnOnce(ToolBuilder) -> ToolBuilder) -> (ToolHub, Outcome) {
    struct Blocks(Vec<Content>);
    impl toolhub::Executor for Blocks {
        fn execute<'a>(&'a self, _: toolhub::Job<'a>) -> toolhub::BoxFuture<'a, Result<toolhub::Reply, ToolError>> {
            let content = self.0.clone();
            Box::pin(async { Ok(toolhub::Reply { output: Value::Null, content }) })
        }
    }
    let executor = Blocks(serde_json::from_value(blocks).unwrap());
    let tool = limit(ToolBuilder::new("blocks", "blocks").read_only());
    let hub = ToolHub::builder().executor("blocks", executor).tool(tool).build().await.unwrap();
    let outcome = hub.call("blocks", json!({})).await;
    (hub, outcome)
}

#[tokio::test]
async fn binary_content_over_the_limit_becomes_artifacts_of_its_type_and_the_rest_stays() {
    let blocks = json!([
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "audio", "data": "aGkh".repeat(30), "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": "aGk".repeat(41)}},
        {"type": "image", "data": "no base64".repeat(20), "mimeType": "image/png"},
        {"type": "image", "data": "aGkh".repeat(40), "mimeType": format!("image/{}", "x".repeat(200))},
        {"type": "image", "data": "aGkh", "mimeType": "image/png"},
    ]);
    let (hub, outcome) = call_blocks(blocks, |tool| tool.output_limit(100)).await;
    let mut stored = Vec::new();
    for piece in &outcome.content {
        if let Content::Artifact { id, .. } = piece {
            stored.push(hub.artifact(&Tenant::default(), id).await.unwrap().unwrap());
        }
    }
    let stored: Vec<_> = stored.iter().map(|one| (one.mime_type.as_str(), one.bytes.len())).collect();
    let expected = [("audio/wav", 90), ("application/pdf", 92), ("text/plain", 180), ("application/octet-stream", 120)];
    assert_eq!(stored, expected);
    let images = outcome.content.iter().filter(|piece| matches!(piece, Content::Image { .. }));
    assert_eq!(images.count(), 2);
    let text = outcome.model_text();
    assert!(text.starts_with("[audio (audio/wav) is too large; it is kept as artifact art_"), "{text}");
    assert!(text.contains("[resource file:///a.pdf (application/pdf) is too large; it is kept"), "{text}");
}

#[tokio::test]
async fn links_and_embedded_texts_are_read_by_the_model_and_count_as_text() {
    let blocks = json!([
        {"type": "text", "text": "found"},
        {"type": "resource_link", "uri": "file:///a.csv", "name": "a.csv", "mimeType": "text/csv"},
        {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///c.bin", "blob": "aGk="}},
    ]);
    let whole = "found\nResource a.csv: file:///a.csv (text/csv)\nResource file:///b.txt:\ninside";
    let (_, outcome) = call_blocks(blocks.clone(), |tool| tool).await;
    let shown = format!("{whole}\n[not shown: resource file:///c.bin (application/octet-stream)]");
    assert_eq!(outcome.model_text(), shown);
    assert_eq!(serde_json::to_value(&outcome.content).unwrap(), blocks);
    let (hub, outcome) = call_blocks(blocks, |tool| tool.text_limit(20)).await;
    assert!(outcome.model_text().starts_with("found\nResource a.csv\n\n["), "{}", outcome.model_text());
    let (id, _) = artifact(&outcome).unwrap();
    assert_eq!(hub.artifact(&Tenant::default(), &id).await.unwrap().unwrap().bytes, whole.as_bytes());
    assert!(outcome.content.iter().any(|piece| piece.binary().is_some()), "binary content stays");
}

#[tokio::test]
async fn an_output_is_compared_with_the_schema_of_its_tool() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let (tool, _) = scripted("count", [ScriptStep::Return(json!({"n": "three"}))]);
    let (free, _) = scripted("free", []);
    let hub = ToolHub::builder().tools([tool.read_only().output_schema(schema), free]).build().await.unwrap();
    let count = hub.get("count").unwrap();
    assert!(count.fits(&json!({"n": 3})));
    for other in [json!({"n": "three"}), json!({}), json!("text"), json!(null)] {
        assert!(!count.fits(&other), "{other}");
    }
    let outcome = hub.call("count", json!({})).await;
    assert_eq!(outcome.assert_success(), &json!({"n": "three"}), "it is returned all the same");
    assert!(hub.get("free").unwrap().fits(&json!({"n": "three"})), "a tool without a schema promises nothing");
    let kept = hub.apply(toolhub::HubChange::replacing_policies().policy("*", Policy::default())).await;
    assert!(kept.is_ok() && !hub.get("count").unwrap().fits(&json!({})), "also after a reload");
}

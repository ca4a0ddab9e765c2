//! The programs of `examples/commands`, as the guide shows them.

use std::path::Path;

use futures_util::StreamExt;
use serde_json::json;
use toolhub_connect::command::Command;
use toolhub_core::{CancellationToken, Effect, ToolHub};

use super::{expect_output, hub, require_installed};

fn example(interpreter: &str, file: &str) -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/commands").join(file);
    assert!(path.is_file(), "{} is missing", path.display());
    require_installed(Command::new(interpreter).arg(path.to_str().unwrap()))
}

#[test]
fn the_guide_shows_the_examples_as_they_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = std::fs::read_to_string(root.join("docs/guide/commands.md")).unwrap();
    for file in std::fs::read_dir(root.join("examples/commands")).unwrap() {
        let path = file.unwrap().path();
        assert!(guide.contains(&std::fs::read_to_string(&path).unwrap()), "{} is not in the guide", path.display());
    }
}

async fn examples_hub() -> ToolHub {
    hub([
        example("python3", "words.py").tool("words"),
        example("node", "slug.mjs").tool("slug"),
        example("python3", "cart.py").stateful_tool("cart"),
        example("node", "notes.mjs").stateful_tool("notes"),
    ])
    .await
}

#[tokio::test]
async fn the_examples_without_state_answer_and_refuse() {
    let hub = examples_hub().await;
    let counted = hub.call("words", json!({"text": "three small words"})).await;
    assert_eq!(expect_output(counted), json!({"words": 3, "longest": "three"}));
    let refused = hub.call("words", json!({"text": ""})).await;
    assert_eq!((refused.error.unwrap().model.as_str(), refused.effect), ("the text has no words", Effect::None));
    let slug = hub.call("slug", json!({"title": "Crème brûlée, at last!"})).await;
    assert_eq!(expect_output(slug), json!({"slug": "cre-me-bru-le-e-at-last"}));
}

#[tokio::test]
async fn the_examples_with_state_remember_in_each_thread_what_they_were_told_there() {
    let hub = examples_hub().await;
    for (thread, qty, items) in [("monday", 2, 2), ("tuesday", 5, 5), ("monday", 1, 3)] {
        let outcome = hub.call("cart", json!({"sku": "latte", "qty": qty})).thread(thread).await;
        assert_eq!(expect_output(outcome), json!({"items": items}));
    }
    let note = async |arguments| hub.call("notes", arguments).thread("monday").await;
    assert_eq!(expect_output(note(json!({"note": "buy milk"})).await), json!(1));
    assert_eq!(expect_output(note(json!({"note": "drink it"})).await), json!(2));
    let refused = note(json!({"read": 3})).await;
    assert_eq!(refused.error.unwrap().model, "there are 2 notes; read one of them");
    assert_eq!(expect_output(note(json!({"read": 1})).await), json!("buy milk"));
}

#[tokio::test]
async fn the_notes_say_how_far_they_are() {
    let hub = examples_hub().await;
    let cancel = CancellationToken::new();
    let mut running = hub.call("notes", json!({"note": "a"})).thread("monday").cancel_on(&cancel).start();
    let progress = running.progress();
    assert_eq!(expect_output(running.outcome().await), json!(1));
    let messages: Vec<String> = progress.map(|progress| progress.message).collect().await;
    assert_eq!(messages, ["writing note 1"]);
}

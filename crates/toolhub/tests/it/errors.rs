//! The table of errors and its page in the documentation match.

use toolhub::{CountsAsFailure, ErrorRow, FailureScope, prelude::*};

fn render_row(row: &ErrorRow) -> String {
    let counts = match row.counts {
        CountsAsFailure::Yes => "yes",
        CountsAsFailure::No => "no",
        CountsAsFailure::OptIn => "opt-in",
    };
    let scope = match row.scope {
        FailureScope::None => "–",
        FailureScope::Thread => "thread",
        FailureScope::ThreadThenShared => "thread, then shared",
        FailureScope::Shared => "shared",
    };
    let retry = if row.retryable { "yes" } else { "no" };
    format!("| `{}` | {counts} | {scope} | {retry} | {} | {} | {} |", row.name, row.http, row.operator, row.model)
}

#[test]
fn the_page_on_errors_is_the_table_in_the_code() {
    let page = include_str!("../../../../docs/errors.md");
    let written: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let coded: Vec<String> = ErrorKind::TABLE.iter().map(render_row).collect();
    assert_eq!(written, coded, "docs/errors.md should say:\n{}", coded.join("\n"));
}

#[tokio::test]
async fn any_error_passes_through_a_question_mark() {
    async fn fails(_: NoArguments) -> Result<(), ToolError> {
        Err(anyhow::anyhow!("disk quota exceeded").context("cannot save the report"))?
    }
    async fn boxed(_: NoArguments) -> Result<(), ToolError> {
        Err(Box::<dyn std::error::Error + Send + Sync>::from("boxed"))?
    }
    let hub = ToolHub::builder().tool(tool("fails", fails)).tool(tool("boxed", boxed)).build().await.unwrap();
    for (name, expected) in [("fails", "cannot save the report: disk quota exceeded"), ("boxed", "boxed")] {
        let outcome = hub.call(name, json!({})).await;
        let error = outcome.error.clone().unwrap();
        assert!(error.operator.contains(expected), "{}", error.operator);
        assert!(!outcome.model_text().contains(expected), "only operators see it: {}", outcome.model_text());
    }
}

#[test]
fn every_kind_finds_its_own_row_and_only_refusals_share_a_name() {
    let mut names: Vec<_> = ErrorKind::TABLE.iter().map(|row| row.name).collect();
    for row in ErrorKind::TABLE {
        assert_eq!(row.kind.row().name, row.name);
        assert_eq!(row.kind.row().operator, row.operator);
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ErrorKind::TABLE.len() - 1);
    assert_eq!(ErrorKind::ToolRefused.name(), ErrorKind::ToolError.name());
}

#[test]
fn a_kind_that_counts_says_where_and_one_that_does_not_says_nowhere() {
    for row in ErrorKind::TABLE {
        assert_eq!(row.counts == CountsAsFailure::No, row.scope == FailureScope::None, "{}", row.name);
    }
}

//! Lists of the API, page by page, as a table or as the document the API gave.
//!
//! In: a request for a list and how many items are wanted. Out: the items. A page may hold fewer than asked for and not be
//! the last, so pages are asked for until there are enough.

use serde_json::Value;

use crate::{client::Request, failure::Failure, session::Session};

/// The API gives no more at once.
const PAGE_SIZE: usize = 500;

/// How much of a list is wanted.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Paging {
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    /// Go on where an earlier list ended
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

impl Paging {
    /// Everything there is, as far as anybody reads.
    pub(crate) fn all() -> Self {
        Self { limit: 100_000, cursor: None }
    }
}

/// The items of a list; none after it was printed as a document.
///
/// # Errors
/// Those of the API.
pub(crate) async fn fetch_items(
    session: &Session,
    request: Request,
    paging: &Paging,
) -> Result<Option<Vec<Value>>, Failure> {
    let most = paging.limit as usize;
    let (mut items, mut cursor) = (Vec::new(), paging.cursor.clone());
    loop {
        let page = request
            .clone()
            .query("limit", Some((most - items.len()).min(PAGE_SIZE)))
            .query("cursor", cursor.as_deref());
        let answer = session.send_checked(page).await?;
        let next = answer.next_cursor();
        // One page that is the whole list is given as it was written.
        if session.printer.json && items.is_empty() && (next.is_none() || answer.items()?.len() >= most) {
            session.printer.print_json(&answer.text());
            return Ok(None);
        }
        items.extend(answer.items()?);
        match next {
            Some(next) if items.len() < most => cursor = Some(next),
            next => {
                if session.printer.json {
                    session.printer.print_json(&serde_json::json!({"items": items, "nextCursor": next}).to_string());
                    return Ok(None);
                }
                if let Some(next) = next {
                    session.printer.note(&format!("there are more: --cursor {next}"));
                }
                return Ok(Some(items));
            }
        }
    }
}

/// The text of a member, empty where there is none.
pub(crate) fn pointer_text(item: &Value, pointer: &str) -> String {
    match item.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    }
}

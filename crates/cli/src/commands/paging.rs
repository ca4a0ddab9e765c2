//! Fetches lists from the API, page by page.
//!
//! In: a request for a list, and how many items to fetch. Out: the items, or the JSON document on stdout. A page may hold fewer items
//! than requested without being the last, so pages are fetched until there are enough.

use serde_json::Value;

use crate::{client::Request, failure::Failure, session::Session};

/// The API's maximum page size.
const PAGE_SIZE: usize = 500;

/// Which part of a list to fetch.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Paging {
    /// Maximum number of items
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    /// Continue after an earlier page
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

impl Paging {
    /// The whole list, up to 100,000 items.
    pub(crate) fn all() -> Self {
        Self { limit: 100_000, cursor: None }
    }
}

/// The items of a list; `None` if they were printed as JSON.
///
/// # Errors
/// Errors of the API.
pub(crate) async fn fetch_items(
    session: &Session,
    request: Request,
    paging: &Paging,
) -> Result<Option<Vec<Value>>, Failure> {
    let limit = paging.limit as usize;
    let (mut items, mut cursor) = (Vec::new(), paging.cursor.clone());
    loop {
        let page = request
            .clone()
            .query("limit", Some((limit - items.len()).min(PAGE_SIZE)))
            .query("cursor", cursor.as_deref());
        let response = session.send_checked(page).await?;
        let next = response.next_cursor();
        // A single page is printed as the API sent it.
        if session.printer.json && items.is_empty() && (next.is_none() || response.items()?.len() >= limit) {
            session.printer.print_json(&response.text());
            return Ok(None);
        }
        items.extend(response.items()?);
        match next {
            Some(next) if items.len() < limit => cursor = Some(next),
            next => {
                if session.printer.json {
                    session.printer.print_json(&serde_json::json!({"items": items, "nextCursor": next}).to_string());
                    return Ok(None);
                }
                if let Some(next) = next {
                    session.set_footer(format!("there are more: add --cursor {next}, or a higher --limit"));
                }
                return Ok(Some(items));
            }
        }
    }
}

/// The items of a list, for a command that prints them in another form.
///
/// # Errors
/// Errors of the API.
pub(crate) async fn read_items(session: &Session, request: Request, paging: &Paging) -> Result<Vec<Value>, Failure> {
    let limit = paging.limit as usize;
    let (mut items, mut cursor) = (Vec::new(), paging.cursor.clone());
    while items.len() < limit {
        let page = request.clone().query("limit", Some((limit - items.len()).min(PAGE_SIZE)));
        let response = session.send_checked(page.query("cursor", cursor.as_deref())).await?;
        items.extend(response.items()?);
        cursor = response.next_cursor();
        if cursor.is_none() {
            break;
        }
    }
    Ok(items)
}

/// The text at a JSON pointer; empty if there is none.
pub(crate) fn pointer_text(item: &Value, pointer: &str) -> String {
    match item.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    }
}

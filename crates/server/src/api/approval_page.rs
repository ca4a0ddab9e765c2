//! The page of one approval, for a person who follows a link: what is asked, and the commands that answer it.
//!
//! In: an approval, with its secrets redacted by the hub. Out: HTML without scripts and forms, so that opening the page
//! can never answer the question. Every value is escaped: tool arguments are written by models.

use std::fmt::Write as _;

use axum::{
    extract::State,
    http::{Method, request::Parts},
    response::{IntoResponse, Response},
};
use toolhub_core::{Approval, ApprovalState, ErrorKind, hidden_chars::needs_escape, ids::ApprovalId};

use super::{
    approvals::ApprovalPath,
    docs::{escape_html, html_page},
};
use crate::{
    app::App,
    extract::{FromParts, Params},
    links::Links,
    problem::{ApiResult, Code},
    route::Route,
    scope::{Access, Principal, Scope},
    settings::Auth,
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/pages/approvals/{id}", Access::Needs(Scope::ToolsRead), "approvals", page)
            .summary("One approval as a page to read")
            .response(200, "text/html", "The page")
            .key_page(key_page)
            .problems(&[Code::APPROVAL_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

async fn page(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<ApprovalPath>,
    links: Links,
) -> ApiResult<impl IntoResponse> {
    let approval = app.hub().approval(&principal.tenant, path.parse_id()?).await?.ok_or_else(|| path.not_found())?;
    let with_keys = matches!(app.settings().auth, Auth::Keys(_));
    let title = format!("Approval of {}", escape_html(&approval.tool));
    Ok(html_page(&title, &body(&approval, &links.base_url(), with_keys), "../../"))
}

/// The page for a person whose browser sends no key: how to see and answer the approval in a terminal. It says nothing about the
/// approval, not even whether it exists.
fn key_page(app: &App, parts: &mut Parts) -> Response {
    let server = Links::from_parts(parts, app).map(|links| links.base_url()).unwrap_or_default();
    let id = parts.uri.path().rsplit('/').next().and_then(|id| id.parse::<ApprovalId>().ok());
    let id = id.map_or_else(|| "ID".to_owned(), |id| id.to_string());
    let flags = server_flag(&server);
    let commands = format!(
        "export TOOLHUB_TOKEN=thk_…\ntoolhub approvals show {id}{flags}\ntoolhub approvals approve {id}{flags}\n\
         toolhub approvals deny {id} --reason 'not today'{flags}"
    );
    let body = format!(
        "<p class=\"lead\">This server shows approvals only with a key, and a browser sends none.</p>\
         <p>In a terminal, with a key that has the scopes <code>tools:read</code> and <code>approvals:write</code>:</p>\
         <pre>{}</pre>",
        show(&commands)
    );
    html_page("Approval", &body, "../../").into_response()
}

fn server_flag(server: &str) -> String {
    if server.is_empty() { String::new() } else { format!(" --server {server}") }
}

fn body(approval: &Approval, server: &str, with_keys: bool) -> String {
    let mut html = format!("<p class=\"lead\">{}</p><dl>", lead(approval));
    let arguments = serde_json::to_string_pretty(&approval.arguments).unwrap_or_default();
    add_text(&mut html, "State", approval.state.display_name());
    add_text(&mut html, "Tool", &approval.tool);
    add_block(&mut html, "Arguments", &arguments);
    if let Some(thread) = &approval.thread {
        add_text(&mut html, "Thread", thread.as_str());
    }
    add_text(&mut html, "Caller", approval.caller.as_str());
    add_text(&mut html, "Rule", &approval.rule);
    if let Some(reason) = &approval.reason {
        add_text(&mut html, "Reason", reason);
    }
    add_text(&mut html, "Requested", &approval.asked_at.to_string());
    if matches!(approval.state, ApprovalState::Pending | ApprovalState::Approved) {
        add_text(&mut html, "Expires", &approval.expires_at.to_string());
    }
    if let Some(answer) = &approval.answer {
        add_text(&mut html, "Answered", &format!("{} by {}", answer.at, answer.by));
        if let Some(message) = &answer.message {
            add_text(&mut html, "Message", message);
        }
        if let Some(edited) = &answer.arguments {
            add_block(&mut html, "New arguments", &serde_json::to_string_pretty(edited).unwrap_or_default());
        }
    }
    add_text(&mut html, "Call", &approval.call_id.to_string());
    html.push_str("</dl>");
    if approval.state == ApprovalState::Pending {
        let id = approval.id;
        let flags = server_flag(server);
        let commands =
            format!("toolhub approvals approve {id}{flags}\ntoolhub approvals deny {id} --reason 'not today'{flags}");
        let key = if with_keys { ", with a key that has the scope <code>approvals:write</code>" } else { "" };
        let _ = write!(html, "<h2>Answer it</h2><p>In a terminal{key}:</p><pre>{}</pre>", show(&commands));
    }
    html
}

fn lead(approval: &Approval) -> &'static str {
    match approval.state {
        ApprovalState::Pending => "A call waits for the answer of a person. This page only shows it.",
        ApprovalState::Approved => "The call was approved and has not started yet.",
        ApprovalState::Used => "The call was approved and made.",
        ApprovalState::Denied => "The call was denied.",
        ApprovalState::TimedOut => "The time limit has passed; the call was not made.",
        ApprovalState::Withdrawn => "The caller gave up before there was an answer.",
    }
}

fn add_text(html: &mut String, name: &str, text: &str) {
    let _ = write!(html, "<dt>{name}</dt><dd>{}</dd>", show(text));
}

fn add_block(html: &mut String, name: &str, text: &str) {
    let _ = write!(html, "<dt>{name}</dt><dd><pre>{}</pre></dd>", show(text));
}

/// A text as HTML. Characters that are invisible or change the direction of the text are written as escapes: they could
/// make an argument look like another one.
fn show(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for c in text.chars() {
        if needs_escape(c) && c != '\n' {
            let _ = write!(visible, "\\u{{{:x}}}", u32::from(c));
        } else {
            visible.push(c);
        }
    }
    escape_html(&visible)
}

#[cfg(test)]
mod tests {
    use super::show;

    #[test]
    fn a_value_shows_as_text_and_hides_nothing() {
        assert_eq!(
            show("<script>\"a\" & 'b'</script>"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;"
        );
        assert_eq!(show("a\u{202e}b\u{200b}\u{7}\nc"), "a\\u{202e}b\\u{200b}\\u{7}\nc");
    }
}

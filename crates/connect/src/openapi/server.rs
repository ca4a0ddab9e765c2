//! Where requests go: the address an operation is below.
//!
//! In: the `servers` of an operation, its path and the document, and what the owner says. Out: an absolute address without a `/` at
//! its end, or why there is none.

use serde_json::Value;
use url::Url;

use super::document::{Document, member_text};

/// The address for an operation: the one its own `servers` name, else its path's, else the document's. The first of a list.
pub(super) fn base_url(document: Document<'_>, levels: [&Value; 2], from: Option<&Url>) -> Result<String, String> {
    let lists = levels.into_iter().chain([document.root]);
    let mut firsts = lists.filter_map(|level| level.get("servers")?.as_array()?.first());
    let Some(server) = firsts.next() else {
        // What the standard says for a document that names none.
        return to_absolute("/", from);
    };
    let written = member_text(server, "url").unwrap_or("/");
    to_absolute(&expand_variables(written, server)?, from)
}

/// An address the owner gave.
pub(super) fn parse_base_url(address: &str) -> Result<String, String> {
    to_absolute(address, None)
}

fn to_absolute(written: &str, from: Option<&Url>) -> Result<String, String> {
    let joined = match (Url::parse(written), from) {
        (Ok(url), _) => url,
        (Err(url::ParseError::RelativeUrlWithoutBase), Some(from)) => {
            from.join(written).map_err(|error| format!("`{written}` is no address: {error}"))?
        }
        (Err(url::ParseError::RelativeUrlWithoutBase), None) => {
            return Err(format!("`{written}` is only the end of an address"));
        }
        (Err(error), _) => return Err(format!("`{written}` is no address: {error}")),
    };
    if !matches!(joined.scheme(), "http" | "https") {
        return Err(format!("`{written}` is neither http nor https"));
    }
    if joined.query().is_some() || joined.fragment().is_some() {
        return Err(format!("`{written}` has a `?` or `#` in it"));
    }
    if !joined.username().is_empty() || joined.password().is_some() {
        return Err("the address holds a user or a password".into());
    }
    Ok(joined.as_str().trim_end_matches('/').to_owned())
}

/// The address with the default of each `{variable}`.
fn expand_variables(written: &str, server: &Value) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = written;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, behind)) = after.split_once('}') else { break };
        let variable = server.get("variables").and_then(|variables| variables.get(name));
        let default = variable.and_then(|variable| variable.get("default"));
        let Some(default) = default.map(super::document::to_text) else {
            return Err(format!("`{{{name}}}` in `{written}` has no default"));
        };
        out.push_str(before);
        out.push_str(&default);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "cases read best as plain values")]
    fn check(document: Value, operation: Value, from: &str, expected: Result<&str, &str>) {
        let mut document = document;
        document["openapi"] = "3.1.0".into();
        let document = Document::new(&document).unwrap();
        let from = Url::parse(from).ok();
        let got = base_url(document, [&operation, &json!({})], from.as_ref());
        match (&got, expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected),
            (Err(got), Err(expected)) => assert!(got.contains(expected), "{got}"),
            _ => panic!("{got:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn the_closest_list_of_servers_decides_and_variables_have_their_defaults() {
        let top = json!({"servers": [{"url": "https://api.example/v1/"}, {"url": "https://other.example"}]});
        check(top.clone(), json!({}), "", Ok("https://api.example/v1"));
        check(top, json!({"servers": [{"url": "https://files.example"}]}), "", Ok("https://files.example"));
        let variable = json!({"servers": [{"url": "https://{host}:{port}/", "variables": {"host": {"default": "a.example"}, "port": {"default": 8443}}}]});
        check(variable, json!({}), "", Ok("https://a.example:8443"));
        check(json!({"servers": [{"url": "https://{host}"}]}), json!({}), "", Err("`{host}`"));
    }

    #[test]
    fn a_relative_address_is_joined_to_where_the_document_came_from() {
        let relative = |url: &str| json!({"servers": [{"url": url}]});
        check(relative("/v2"), json!({}), "https://a.example/docs/openapi.json", Ok("https://a.example/v2"));
        check(relative("v2"), json!({}), "https://a.example/docs/openapi.json", Ok("https://a.example/docs/v2"));
        check(relative("//b.example"), json!({}), "https://a.example/openapi.json", Ok("https://b.example"));
        check(json!({}), json!({}), "https://a.example/docs/openapi.json", Ok("https://a.example"));
        check(relative("/v2"), json!({}), "", Err("only the end"));
        check(relative("ftp://a.example"), json!({}), "", Err("neither http nor https"));
        check(relative("https://u:p@a.example"), json!({}), "", Err("a password"));
    }
}

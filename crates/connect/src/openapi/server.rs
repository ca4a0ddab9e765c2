//! Determines the base URL of an operation.
//!
//! In: the `servers` of an operation, its path item and the document, and the URL of the document. Out: an absolute URL without a
//! trailing slash, or why there is none.

use serde_json::Value;
use url::Url;

use super::document::{Document, member_text};

/// The base URL of an operation: the first of its own `servers`, else of its path item, else of the document.
pub(super) fn base_url(
    document: Document<'_>,
    levels: [&Value; 2],
    document_url: Option<&Url>,
) -> Result<String, String> {
    let lists = levels.into_iter().chain([document.root]);
    let mut firsts = lists.filter_map(|level| level.get("servers")?.as_array()?.first());
    let Some(server) = firsts.next() else {
        // The default of the standard.
        return to_absolute("/", document_url);
    };
    let url = member_text(server, "url").unwrap_or("/");
    to_absolute(&expand_variables(url, server)?, document_url)
}

/// Parses the base URL of the import options.
pub(super) fn parse_base_url(text: &str) -> Result<String, String> {
    to_absolute(text, None)
}

fn to_absolute(text: &str, document_url: Option<&Url>) -> Result<String, String> {
    let url = match (Url::parse(text), document_url) {
        (Ok(url), _) => url,
        (Err(url::ParseError::RelativeUrlWithoutBase), Some(document_url)) => {
            document_url.join(text).map_err(|error| format!("`{text}` is not a valid URL: {error}"))?
        }
        (Err(url::ParseError::RelativeUrlWithoutBase), None) => {
            return Err(format!("`{text}` is not an absolute URL"));
        }
        (Err(error), _) => return Err(format!("`{text}` is not a valid URL: {error}")),
    };
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("`{text}` is neither http nor https"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("`{text}` has a query or a fragment"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL contains a user or a password".into());
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// Replaces each `{variable}` of a server URL by its default.
fn expand_variables(url: &str, server: &Value) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = url;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, tail)) = after.split_once('}') else { break };
        let variable = server.get("variables").and_then(|variables| variables.get(name));
        let default = variable.and_then(|variable| variable.get("default"));
        let Some(default) = default.map(super::document::to_text) else {
            return Err(format!("`{{{name}}}` in `{url}` has no default"));
        };
        out.push_str(before);
        out.push_str(&default);
        rest = tail;
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
    fn check(document: Value, operation: Value, document_url: &str, expected: Result<&str, &str>) {
        let mut document = document;
        document["openapi"] = "3.1.0".into();
        let document = Document::new(&document).unwrap();
        let document_url = Url::parse(document_url).ok();
        let got = base_url(document, [&operation, &json!({})], document_url.as_ref());
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
        check(relative("/v2"), json!({}), "", Err("not an absolute URL"));
        check(relative("ftp://a.example"), json!({}), "", Err("neither http nor https"));
        check(relative("https://u:p@a.example"), json!({}), "", Err("a password"));
    }
}

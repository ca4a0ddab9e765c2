//! Finds the secrets that the settings of a request contain literally.
//!
//! In: the settings. Out: texts to mask in everything that leaves the tool. A value is secret if it is declared so, or by the name
//! of its query parameter, header, cookie or field.

use std::sync::Arc;

use serde_json::Value;
use toolhub_core::redact::{is_secret_name, is_secret_setting};

use crate::rest::{Body, Rest, encode};

/// A shorter value whose name only may be secret, such as `sort_key`, is taken for an ordinary word.
const MIN_GUESSED_LEN: usize = 16;

pub(super) fn of(rest: &Rest) -> Vec<Arc<str>> {
    let urls = [&rest.url, &rest.base_url, &rest.path].into_iter().flatten();
    let in_urls = urls.filter_map(|url| url.split_once('?')).flat_map(|(_, query)| query.split('&'));
    let in_urls = in_urls.filter_map(|pair| pair.split_once('=')).map(|(name, value)| (name, encode::decode(value)));
    let written = rest.query.iter().chain(&rest.headers).chain(&rest.cookies);
    let fields = match &rest.body {
        Some(Body::Form(fields)) => fields.as_slice(),
        _ => &[],
    };
    let written = written.chain(fields).map(|(name, value)| (name.as_str(), value.clone()));
    let by_name = in_urls.chain(written).filter(|(name, value)| is_secret(name, value)).map(|(_, value)| value);
    let in_body = match &rest.body {
        Some(Body::Json(body)) => json_secrets(body),
        _ => Vec::new(),
    };
    // A template stands for arguments, and is no secret itself.
    let literal = by_name.chain(in_body).filter(|value| !value.contains('{')).map(Arc::from);
    literal.chain(rest.secret_texts.iter().cloned().map(Arc::from)).collect()
}

fn is_secret(name: &str, value: &str) -> bool {
    is_secret_name(name) || (value.len() >= MIN_GUESSED_LEN && is_secret_setting(name))
}

/// The texts of a body under secret names.
fn json_secrets(body: &Value) -> Vec<String> {
    match body {
        Value::Object(members) => members
            .iter()
            .flat_map(|(name, value)| match value {
                Value::String(text) if is_secret(name, text) => vec![text.clone()],
                other => json_secrets(other),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(json_secrets).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn literal_values_with_secret_names_are_secret_wherever_they_are_sent() {
        let rest = Rest::new("POST", "https://api.example/v1?token=in%2Furl&page=2&sort_key=name&key=0123456789abcdef")
            .query("access_token", "in-query")
            .header("X-Auth-Token", "Bearer {token}")
            .cookie("session_token", "in-cookie")
            .json(json!({"client_secret": "in-body", "list": [{"password": "deep"}], "credentials": {"kind": "x"}}))
            .secret_text("declared");
        let mut found: Vec<_> = of(&rest).iter().map(ToString::to_string).collect();
        found.sort();
        assert_eq!(found, ["0123456789abcdef", "declared", "deep", "in-body", "in-cookie", "in-query", "in/url"]);
    }
}

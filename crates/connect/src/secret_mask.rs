//! Masks known secrets in what a service or a program returns.
//!
//! In: the secrets that a request or a program was given. Out: texts and values without them, also where they are escaped or
//! percent-encoded.

use std::borrow::Cow;

use base64::{Engine, prelude::BASE64_STANDARD as STANDARD};
use serde_json::Value;
use toolhub_core::{Reply, ToolError};
use toolhub_net::SecretText;

use crate::percent_encode::percent_encode;

/// Shorter secrets are not masked: they would match everywhere.
const MIN_SECRET_LEN: usize = 4;

/// Replaces secrets with [`SecretText::MASK`].
#[derive(Debug, Default)]
pub(crate) struct SecretMask {
    /// The forms in which they may appear, longest first, since one may contain another.
    forms: Vec<String>,
}

impl SecretMask {
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut forms = Vec::new();
        for secret in secrets.into_iter().filter(|secret| secret.len() >= MIN_SECRET_LEN) {
            let (escaped, encoded) = (Value::from(secret).to_string(), percent_encode(secret));
            forms.extend([
                secret.to_owned(),
                escaped[1..escaped.len() - 1].to_owned(),
                encoded.replace("%20", "+"),
                encoded,
            ]);
        }
        forms.sort_by(|a: &String, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        forms.dedup();
        Self { forms }
    }

    /// Length of the longest form.
    pub(crate) fn max_len(&self) -> usize {
        self.forms.first().map_or(0, String::len)
    }

    /// The text without the secrets.
    pub(crate) fn text<'a>(&self, text: impl Into<Cow<'a, str>>) -> Cow<'a, str> {
        let mut text = text.into();
        for form in &self.forms {
            if text.contains(form.as_str()) {
                text = text.replace(form.as_str(), SecretText::MASK).into();
            }
        }
        text
    }

    /// Masks the secrets in bytes that are no text; their length stays.
    pub(crate) fn bytes(&self, bytes: &mut [u8]) {
        for form in self.forms.iter().map(String::as_bytes) {
            let mut from = 0;
            while let Some(at) = find(&bytes[from..], form) {
                let end = from + at + form.len();
                bytes[from + at..end].fill(b'*');
                from = end;
            }
        }
    }

    /// Masks the secrets in the texts of an error.
    pub(crate) fn error(&self, mut error: ToolError) -> ToolError {
        error.operator = self.text(error.operator).into_owned();
        error.model = error.model.map(|text| self.text(text).into_owned());
        error
    }

    /// Masks the secrets in all strings and member names of a value.
    pub(crate) fn value(&self, value: &mut Value) {
        if self.forms.is_empty() {
            return;
        }
        match value {
            Value::String(text) => {
                if let Cow::Owned(masked) = self.text(text.as_str()) {
                    *text = masked;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(members) => {
                if members.keys().any(|name| matches!(self.text(name.as_str()), Cow::Owned(_))) {
                    let masked = std::mem::take(members).into_iter();
                    *members = masked.map(|(name, value)| (self.text(name).into_owned(), value)).collect();
                }
                members.values_mut().for_each(|value| self.value(value));
            }
            _ => {}
        }
    }

    /// Masks the secrets in the output, the texts and the bytes of a reply.
    pub(crate) fn reply(&self, mut reply: Reply) -> Reply {
        if self.forms.is_empty() {
            return reply;
        }
        self.value(&mut reply.output);
        for block in &mut reply.content {
            for text in block.texts_mut() {
                if let Cow::Owned(masked) = self.text(text.as_str()) {
                    *text = masked;
                }
            }
            if let Some(data) = block.base64_mut() {
                self.base64(data);
            }
        }
        reply
    }

    /// Masks the secrets in bytes that are written as base64.
    fn base64(&self, data: &mut String) {
        let Ok(mut bytes) = STANDARD.decode(data.as_bytes()) else { return };
        let original = bytes.clone();
        self.bytes(&mut bytes);
        if bytes != original {
            *data = STANDARD.encode(bytes);
        }
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_masked_in_every_form_and_place() {
        let mask = SecretMask::new(["s3cr3t/val", "a \"b\"", "abc"]);
        for (text, masked) in [
            ("token s3cr3t/val, s3cr3t%2Fval", "token ••••, ••••"),
            (r#"{"x":"a \"b\""} a+%22b%22 a%20%22b%22"#, r#"{"x":"••••"} •••• ••••"#),
            ("abc is too short", "abc is too short"),
        ] {
            assert_eq!(mask.text(text), masked);
        }
        let mut bytes = b"\xff s3cr3t/val\0s3cr3t%2Fval \xfe".to_vec();
        mask.bytes(&mut bytes);
        assert_eq!(bytes, b"\xff **********\0************ \xfe");
        let mut value = json!({"list": ["s3cr3t/val", 1], "as s3cr3t/val name": {"deep": "x s3cr3t/val"}});
        mask.value(&mut value);
        assert_eq!(value, json!({"list": ["••••", 1], "as •••• name": {"deep": "x ••••"}}));
        let blocks = json!([
            {"type": "text", "text": "s3cr3t/val"},
            {"type": "image", "data": STANDARD.encode("\u{0}s3cr3t/val!"), "mimeType": "image/png"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "http://x/s3cr3t/val", "name": "s3cr3t/val", "description": "a+%22b%22"},
        ]);
        let content = serde_json::from_value(blocks).unwrap();
        let reply = mask.reply(Reply { output: json!("s3cr3t/val"), content });
        let masked = json!([
            {"type": "text", "text": "••••"},
            {"type": "image", "data": STANDARD.encode("\u{0}**********!"), "mimeType": "image/png"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "http://x/••••", "name": "••••", "description": "••••"},
        ]);
        assert_eq!((reply.output, serde_json::to_value(reply.content).unwrap()), (json!("••••"), masked));
    }
}

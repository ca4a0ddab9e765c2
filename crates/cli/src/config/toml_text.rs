//! Keys and strings as TOML text, for sections that commands write.

/// A TOML key, quoted if necessary.
pub(crate) fn toml_key(name: &str) -> String {
    let bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { name.into() } else { toml_string(name) }
}

/// A TOML string on one line, whatever it holds: it may follow a `#`, and may come from an untrusted document. JSON's escapes are
/// valid in TOML; DEL must be escaped in addition.
pub(crate) fn toml_string(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

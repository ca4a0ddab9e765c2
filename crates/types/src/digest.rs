//! Stable SHA-256 fingerprints, such as those of a tool's origin and of a call's arguments.
//!
//! In: bytes, or JSON. Out: the digest, as hex or raw bytes. JSON values that differ only in member order have the same digest.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// SHA-256 of the parts in hex. Each part is prefixed with its length, so that different lists of parts never hash the same bytes.
pub fn sha256_hex<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    hex(&sha256(parts))
}

/// Like [`sha256_hex`], as raw bytes.
pub fn sha256<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// SHA-256 of the concatenated parts, in hex. Parts of variable length need a separator between them.
pub fn concat_sha256_hex<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let hash = parts.into_iter().fold(Sha256::new(), Sha256::chain_update);
    hex(&hash.finalize())
}

/// The bytes as two lower-case hexadecimal digits each.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)]));
    bytes.iter().flat_map(digits).collect()
}

/// The hex digest of a JSON value; member order does not matter.
pub fn hash_json(value: &Value) -> String {
    sha256_hex([canonical_json(value).as_bytes()])
}

/// Canonical JSON text: members sorted by name, no whitespace.
pub fn canonical_json(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut names: Vec<_> = members.keys().collect();
            names.sort_unstable();
            out.push('{');
            for (index, name) in names.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write_canonical(&members[name], out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn digests_are_those_of_other_programs() {
        assert_eq!(hex(&[0, 1, 0x7f, 0x80, 0xff]), "00017f80ff");
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(concat_sha256_hex([&b"a"[..], b"", b"bc"]), abc);
        assert_ne!(sha256_hex([&b"a"[..], b"", b"bc"]), sha256_hex([&b"abc"[..]]));
    }

    #[test]
    fn the_order_of_members_does_not_matter_and_everything_else_does() {
        let one: Value = serde_json::from_str(r#"{"a":[1,{"x":null,"y":"q\"z"}],"b":2.5}"#).unwrap();
        let other: Value = serde_json::from_str(r#"{"b":2.5,"a":[1,{"y":"q\"z","x":null}]}"#).unwrap();
        assert_eq!(canonical_json(&one), r#"{"a":[1,{"x":null,"y":"q\"z"}],"b":2.5}"#);
        assert_eq!(hash_json(&one), hash_json(&other));
        assert_ne!(hash_json(&json!([1, 2])), hash_json(&json!([2, 1])));
    }
}

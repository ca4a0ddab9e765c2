//! What is kept of a line that is too long: enough to find the id of its request, so that the client gets an answer to it.
//!
//! In: the line in parts. Out: the id, if it is a request and both the id and the method are near the start or the end.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;

/// How many bytes of the start and of the end are kept.
const MAX_END: usize = 1_024;

/// The start and the end of a line.
#[derive(Default)]
pub(super) struct LineEnds {
    start: Vec<u8>,
    end: Vec<u8>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RequestMembers {
    id: Option<Value>,
    method: Option<String>,
}

impl LineEnds {
    pub(super) fn push(&mut self, part: &[u8]) {
        let missing = MAX_END.saturating_sub(self.start.len()).min(part.len());
        self.start.extend_from_slice(&part[..missing]);
        self.end.extend_from_slice(&part[part.len().saturating_sub(MAX_END)..]);
        let excess = self.end.len().saturating_sub(MAX_END);
        self.end.drain(..excess);
    }

    /// The id of the request; null if it is not found, or the line is no request.
    pub(super) fn request_id(&self) -> Value {
        let (first, last) = (leading(&self.start), trailing(&self.end));
        let is_request = first.method.or(last.method).is_some();
        first.id.or(last.id).filter(|id| is_request && (id.is_string() || id.is_number())).unwrap_or_default()
    }
}

/// The members at the start of an object that is cut.
fn leading(text: &[u8]) -> RequestMembers {
    struct LeadingMembers<'a>(&'a mut RequestMembers);
    impl<'de> Visitor<'de> for LeadingMembers<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            let mut id = None;
            while let Some(name) = map.next_key::<String>()? {
                // Only now it is known that the value before was not cut.
                self.0.id = self.0.id.take().or(id.take());
                match name.as_str() {
                    "id" => id = Some(map.next_value()?),
                    "method" => self.0.method = Some(map.next_value()?),
                    _ => drop(map.next_value::<IgnoredAny>()?),
                }
            }
            Ok(())
        }
    }
    let mut members = RequestMembers::default();
    // It ends with an error where the text is cut.
    let _ = serde_json::Deserializer::from_slice(text).deserialize_map(LeadingMembers(&mut members));
    members
}

/// The members at the end of an object that is cut: with a brace before the first of them it is an object again.
fn trailing(text: &[u8]) -> RequestMembers {
    let mut text = text.to_vec();
    for at in 1..text.len() {
        if text[at] == b'"' {
            text[at - 1] = b'{';
            if let Ok(members) = serde_json::from_slice(&text[at - 1..]) {
                return members;
            }
        }
    }
    RequestMembers::default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &Value) {
        for size in [1, 700, 10_000] {
            let mut ends = LineEnds::default();
            line.as_bytes().chunks(size).for_each(|part| ends.push(part));
            assert_eq!(ends.request_id(), *expected, "{} … in parts of {size}", &line[..60]);
        }
    }

    #[test]
    fn the_id_of_a_request_is_found_at_its_start_or_end() {
        let long = format!(r#"{{"text":"{} \",\"id\":9}}","id":8}}"#, "\u{fc}x".repeat(3_000));
        check(&format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{long}}}"#), &json!(7));
        check(&format!(r#"{{"method":"m","params":{long},"jsonrpc":"2.0","id":"a"}}"#), &json!("a"));
        check(&format!(r#"{{"params":{long},"id":7,"method":"m"}}"#), &json!(7));
        check(&format!(r#"{{"id":7,"params":{long},"method":"m"}} "#), &json!(7));
        // Notifications, answers, batches and text have none.
        check(&format!(r#"{{"method":"m","params":{long}}}"#), &Value::Null);
        check(&format!(r#"{{"jsonrpc":"2.0","id":7,"result":{long}}}"#), &Value::Null);
        check(&format!(r#"[{{"method":"m","params":{long},"id":7}}]"#), &Value::Null);
        check(&"x".repeat(5_000), &Value::Null);
        // A number that is cut is another number.
        check(&format!(r#"{{"method":"m","{}":1,"id":{}}}"#, "k".repeat(900), "7".repeat(2_000)), &Value::Null);
    }
}

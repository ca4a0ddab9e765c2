//! Cursors of lists.
//!
//! In: the position where a page ends. Out: an opaque text: the position, with a checksum over it and the list's name, so that a
//! damaged cursor or one of another list is refused. It is neither secret nor signed.

use toolhub_core::digest;

/// Hexadecimal digits of a cursor's checksum.
const CHECKSUM_LEN: usize = 8;

/// Encodes a position as a cursor: its checksum and its bytes, in hexadecimal digits.
pub(crate) fn encode(list: &str, position: &str) -> String {
    checksum(list, position) + &digest::hex(position.as_bytes())
}

/// Decodes the position in a cursor; `None` unless [`encode`] made it for this list.
pub(crate) fn decode(list: &str, cursor: &str) -> Option<String> {
    let (sum, digits) = cursor.split_at_checked(CHECKSUM_LEN)?;
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = digits.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    let position = String::from_utf8(bytes.collect::<Option<_>>()?).ok()?;
    (checksum(list, &position) == sum).then_some(position)
}

fn checksum(list: &str, position: &str) -> String {
    let mut sum = digest::concat_sha256_hex([list.as_bytes(), &[0], position.as_bytes()]);
    sum.truncate(CHECKSUM_LEN);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_place_in_its_list_only() {
        for position in ["", "t1", "~/cart/business", "ü\0"] {
            let cursor = encode("threads", position);
            assert_eq!(decode("threads", &cursor).as_deref(), Some(position));
            assert_eq!(decode("calls", &cursor), None);
        }
    }

    #[test]
    fn a_damaged_cursor_is_none() {
        let cursor = encode("threads", "t1");
        let upper = cursor.to_ascii_uppercase();
        let others =
            ["", "1", "zzzzzzzz", "ääääääää", "0000000ä", &cursor[1..], &cursor[..cursor.len() - 1], "00000000ffff"];
        for text in others.into_iter().chain((upper != cursor).then_some(upper.as_str())) {
            assert_eq!(decode("threads", text), None, "{text}");
        }
    }
}

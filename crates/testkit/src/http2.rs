//! Frames that an HTTP/2 client sends, as bytes, for clients that break the rules of good behaviour.

/// The types of frames that tests look at.
pub const DATA: u8 = 0;
/// A request.
pub const HEADERS: u8 = 1;
/// The settings of the other side.
pub const SETTINGS: u8 = 4;
/// A keep-alive.
pub const PING: u8 = 6;
/// More window for a stream, or for the connection.
pub const WINDOW_UPDATE: u8 = 8;
/// The flag of an acknowledgement.
pub const ACK: u8 = 1;

/// The connection preface, with the initial window of streams.
#[must_use]
pub fn preface(window: u32) -> Vec<u8> {
    let setting = [&[0, 4][..], &window.to_be_bytes()].concat();
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(SETTINGS, 0, 0, &setting)[..]].concat()
}

/// A GET request on a stream; streams of clients have odd numbers.
///
/// # Panics
/// When the path or the key is longer than the simple encoding allows.
#[must_use]
pub fn get(stream: u32, path: &str, key: Option<&str>) -> Vec<u8> {
    // Indexed method and scheme, then literal headers with indexed names, not compressed.
    let mut block = vec![0x82, 0x86];
    let mut literal = |name: &[u8], value: &str| {
        assert!(value.len() < 127, "longer values need another encoding");
        block.extend_from_slice(name);
        block.push(value.len() as u8);
        block.extend_from_slice(value.as_bytes());
    };
    literal(&[0x04], path);
    literal(&[0x01], "localhost");
    if let Some(key) = key {
        literal(&[0x0f, 0x08], &format!("Bearer {key}"));
    }
    let (end_stream, end_headers) = (1, 4);
    frame(HEADERS, end_headers | end_stream, stream, &block)
}

/// Grants a window to a stream, or to the connection (0).
#[must_use]
pub fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// One frame.
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

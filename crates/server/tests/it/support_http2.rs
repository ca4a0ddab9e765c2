//! The client side of HTTP/2, as far as hostile clients need it: requests, and a window that grants nothing.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The connection preface, with the initial window of streams.
pub(crate) fn preface(window: u32) -> Vec<u8> {
    let setting = [&[0, 4][..], &window.to_be_bytes()].concat();
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(SETTINGS, 0, 0, &setting)[..]].concat()
}

/// A GET request on a stream; streams of clients have odd numbers.
pub(crate) fn get(stream: u32, path: &str, key: Option<&str>) -> Vec<u8> {
    // Indexed method and scheme, then literal headers with indexed names, not compressed.
    let mut block = vec![0x82, 0x86];
    let mut literal = |name: &[u8], value: &str| {
        block.extend_from_slice(name);
        assert!(value.len() < 127, "longer values need another encoding");
        block.push(value.len() as u8);
        block.extend_from_slice(value.as_bytes());
    };
    literal(&[0x04], path);
    literal(&[0x01], "localhost");
    if let Some(key) = key {
        literal(&[0x0f, 0x08], &format!("Bearer {key}"));
    }
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)
}

/// Grants a window to a stream, or to the connection (0).
pub(crate) fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Reads frames and acknowledges settings and pings until the server closes; returns the bytes of answers.
pub(crate) async fn read_to_close(tcp: &mut TcpStream) -> usize {
    let mut received = 0;
    loop {
        let mut head = [0; 9];
        if tcp.read_exact(&mut head).await.is_err() {
            return received;
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        if tcp.read_exact(&mut payload).await.is_err() {
            return received;
        }
        let answer = match (head[3], head[4] & ACK) {
            (DATA, _) => {
                received += length;
                continue;
            }
            (SETTINGS, 0) => frame(SETTINGS, ACK, 0, &[]),
            (PING, 0) => frame(PING, ACK, 0, &payload),
            _ => continue,
        };
        if tcp.write_all(&answer).await.is_err() {
            return received;
        }
    }
}

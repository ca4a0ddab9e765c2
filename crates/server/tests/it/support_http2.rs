//! The client side of HTTP/2, for clients that read no answers.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use toolhub_testkit::http2::{ACK, DATA, PING, SETTINGS, frame};

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

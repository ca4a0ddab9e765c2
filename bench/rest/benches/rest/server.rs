//! A server that does next to nothing: it reads a request as far as it must, and writes the same answer again and again.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// About as much as a small API answers.
const RESPONSE_BODY: &str =
    r#"{"city":"Bad Ems","now":{"celsius":7.5,"wind":{"from":"NW","kmh":14},"sky":"cloudy"},"day":[7,9,11,12,10,8]}"#;

/// Starts it on a thread of its own.
pub(crate) fn start() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                tokio::spawn(serve(stream));
            }
        });
    });
    address
}

async fn serve(mut stream: TcpStream) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json";
    let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{RESPONSE_BODY}", RESPONSE_BODY.len());
    let (mut buffer, mut filled) = (vec![0; 16 << 10], 0);
    loop {
        let Ok(read @ 1..) = stream.read(&mut buffer[filled..]).await else { return };
        filled += read;
        if !is_complete(&buffer[..filled]) {
            continue;
        }
        filled = 0;
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn is_complete(bytes: &[u8]) -> bool {
    let Some(head) = bytes.windows(4).position(|part| part == b"\r\n\r\n") else { return false };
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    bytes.len() >= head + 4 + length.unwrap_or(0)
}

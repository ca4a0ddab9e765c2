//! A minimal server: it parses a request only as far as necessary, and always sends the same response.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// About the size of a response of a small API.
const RESPONSE_BODY: &str =
    r#"{"city":"Bad Ems","now":{"celsius":7.5,"wind":{"from":"NW","kmh":14},"sky":"cloudy"},"day":[7,9,11,12,10,8]}"#;

/// Starts the server on its own thread.
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
    let response = format!("{head}\r\ncontent-length: {}\r\n\r\n{RESPONSE_BODY}", RESPONSE_BODY.len());
    let (mut buffer, mut filled) = (vec![0; 16 << 10], 0);
    loop {
        let Ok(count @ 1..) = stream.read(&mut buffer[filled..]).await else { return };
        filled += count;
        if !is_complete(&buffer[..filled]) {
            continue;
        }
        filled = 0;
        if stream.write_all(response.as_bytes()).await.is_err() {
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

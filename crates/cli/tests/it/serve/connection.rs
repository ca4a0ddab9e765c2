//! An HTTP connection to a server: sequential requests over a real socket.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::Value;

pub(super) struct HttpConnection(BufReader<TcpStream>);

pub(super) struct HttpResponse {
    pub(super) status: u16,
    head: String,
    pub(super) text: String,
}

impl HttpResponse {
    /// The value of a header, by its name in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.split_once(": ").filter(|(it, _)| *it == name)).map(|(_, value)| value)
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

impl HttpConnection {
    pub(super) fn connect(port: u16) -> Self {
        Self::try_connect(port).expect("the server accepts connections")
    }

    /// Connects, if the server is still running.
    pub(super) fn try_connect(port: u16) -> Option<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("the timeout can be set");
        Some(Self(BufReader::new(stream)))
    }

    /// Sends a request; `None` if the connection ended before the response.
    pub(super) fn try_send(&mut self, what: &str, headers: &str, body: &str) -> Option<HttpResponse> {
        let length = body.len();
        let request = format!(
            "{what} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        self.0.get_mut().write_all(request.as_bytes()).ok()?;
        let (mut head, mut length, mut chunked) = (String::new(), 0_usize, false);
        loop {
            let begun = head.len();
            if self.0.read_line(&mut head).ok()? == 0 {
                return None;
            }
            let header = head[begun..].trim().to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length is a number");
            }
            chunked |= header.starts_with("transfer-encoding:");
            if header.is_empty() {
                break;
            }
        }
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a response has a status");
        let mut body = vec![0; length];
        if chunked {
            body = self.read_chunks()?;
        } else {
            self.0.read_exact(&mut body).ok()?;
        }
        Some(HttpResponse { status, head, text: String::from_utf8(body).expect("a response is text") })
    }

    fn read_chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut size = String::new();
            self.0.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).expect("a chunk has a size");
            let mut chunk = vec![0; size + 2];
            self.0.read_exact(&mut chunk).ok()?;
            if size == 0 {
                return Some(body);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    pub(super) fn send(&mut self, what: &str, headers: &str, body: &str) -> HttpResponse {
        self.try_send(what, headers, body).unwrap_or_else(|| panic!("no response to {what}"))
    }
}

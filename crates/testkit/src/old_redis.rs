//! A server that says that it is an old version of Redis, which nothing installs any more. It knows the commands that a client begins with.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    thread,
};

/// A listening server; it ends with the process.
#[derive(Debug)]
pub struct OldRedis(u16);

impl OldRedis {
    /// Starts a server that reports this version.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn start(version: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("a listener has an address").port();
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                thread::spawn(move || serve(connection, version));
            }
        });
        Self(port)
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.0)
    }
}

fn serve(mut connection: TcpStream, version: &str) -> Option<()> {
    let mut requests = BufReader::new(connection.try_clone().ok()?);
    loop {
        let words = read_command(&mut requests)?;
        let answer = match words.first()?.to_uppercase().as_str() {
            "HELLO" => "%3\r\n+server\r\n+redis\r\n+proto\r\n:3\r\n+role\r\n+master\r\n".to_owned(),
            "INFO" => {
                let info = format!(
                    "redis_version:{version}\r\nrole:master\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\n"
                );
                format!("${}\r\n{info}\r\n", info.len())
            }
            "CLIENT" | "SELECT" | "PING" => "+OK\r\n".to_owned(),
            _ => "-ERR an unexpected command\r\n".to_owned(),
        };
        connection.write_all(answer.as_bytes()).ok()?;
    }
}

/// The words of the next command; `None` at the end.
fn read_command(requests: &mut impl BufRead) -> Option<Vec<String>> {
    let count = read_length(requests, '*')?;
    (0..count).map(|_| read_word(requests)).collect()
}

fn read_word(requests: &mut impl BufRead) -> Option<String> {
    let mut bytes = vec![0; read_length(requests, '$')? + 2];
    requests.read_exact(&mut bytes).ok()?;
    String::from_utf8(bytes).ok().map(|word| word.trim_end().to_owned())
}

fn read_length(requests: &mut impl BufRead, kind: char) -> Option<usize> {
    let mut line = String::new();
    requests.read_line(&mut line).ok()?;
    line.strip_prefix(kind)?.trim_end().parse().ok()
}

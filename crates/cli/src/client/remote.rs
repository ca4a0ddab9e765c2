//! The way over the network.
//!
//! In: requests. Out: what the server answered, or why nobody did. A key goes along in its header and nowhere else.

use std::{sync::Once, time::Duration};

use super::{
    events::{Events, Source, Streamed},
    request::{Answer, Request},
};
use crate::failure::Failure;

/// How long a server may take to take the connection.
const CONNECT: Duration = Duration::from_secs(5);

/// A server somewhere.
pub(crate) struct Remote {
    http: reqwest::Client,
    /// Without a slash at its end.
    url: String,
    token: Option<String>,
    named: bool,
}

impl Remote {
    /// The server at this address.
    ///
    /// # Errors
    /// When that is no address.
    pub(crate) fn new(url: &str, token: Option<String>, named: bool) -> Result<Self, Failure> {
        let wrong = |why: &str| {
            Failure::usage(format!("`{url}` is no address of a server: {why}"))
                .help("write it like --server http://127.0.0.1:8665")
        };
        let read = reqwest::Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
        if !matches!(read.scheme(), "http" | "https") || !read.has_host() {
            return Err(wrong("it begins with http:// or https://"));
        }
        if !read.username().is_empty() || read.password().is_some() {
            return Err(wrong("a key belongs into --token or TOOLHUB_TOKEN, not into the address"));
        }
        cryptography();
        let mut http = reqwest::Client::builder();
        if is_this_machine(read.host_str().unwrap_or_default()) {
            // A proxy that the environment names is for the way out; it has no business with this machine's own servers.
            http = http.no_proxy();
        }
        let http = http
            .connect_timeout(CONNECT)
            // A key must not travel to another host because a server says so.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("toolhub/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Failure::unexpected(format!("no client for HTTP can be made: {error}")))?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), token, named })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) async fn send(&self, request: Request) -> Result<Answer, Failure> {
        self.whole(self.ask(request).await?).await
    }

    pub(super) async fn stream(&self, request: Request) -> Result<Streamed, Failure> {
        let answer = self.ask(request).await?;
        let media = answer.headers().get("content-type").and_then(|media| media.to_str().ok()).unwrap_or_default();
        if media.starts_with("text/event-stream") {
            return Ok(Streamed::Events(Events::new(Source::Remote(Box::new(answer)))));
        }
        self.whole(answer).await.map(Streamed::Answer)
    }

    async fn ask(&self, request: Request) -> Result<reqwest::Response, Failure> {
        let mut sent = self.http.request(request.method, format!("{}{}", self.url, request.target));
        if let Some(token) = &self.token {
            sent = sent.bearer_auth(token);
        }
        for (name, value) in request.headers {
            sent = sent.header(name, value);
        }
        if let Some(body) = request.body {
            sent = sent.header("content-type", "application/json").body(body.to_string());
        }
        sent.send().await.map_err(|error| self.nobody(&error))
    }

    async fn whole(&self, answer: reqwest::Response) -> Result<Answer, Failure> {
        let status = answer.status().as_u16();
        let body = answer.bytes().await.map_err(|error| self.nobody(&error))?.to_vec();
        Ok(Answer { status, body })
    }

    fn nobody(&self, error: &reqwest::Error) -> Failure {
        let mut cause: &dyn std::error::Error = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        let failure = Failure::new("unreachable", format!("the server at {} does not answer: {cause}", self.url));
        if self.named {
            failure.help("start one with `toolhub serve`, or leave --server and TOOLHUB_URL out to use the store here")
        } else {
            failure
        }
    }
}

fn is_this_machine(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Names the cryptography of TLS, once per process.
pub(super) fn cryptography() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // It fails only where somebody named one before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

//! The cookie of a login: its name and attributes, and for which requests it counts.
//!
//! In: the head of a request. Out: the secrets in its cookies, if the server's own page has sent it. A browser also sends cookies with
//! requests that other pages cause: `SameSite` does not hold back those of other ports of the same host, `Origin` and `Sec-Fetch-Site` do.

use axum::http::{HeaderMap, HeaderValue, Method, header};

use crate::{
    origin_check::{FETCH_SITE, url_origin},
    problem::{Code, Problem},
    settings::Settings,
};

/// More cookies of this name are not looked at. Servers below several prefixes of one host may each have set one.
const MAX_COOKIES: usize = 4;

/// The cookie of a server.
#[derive(Debug)]
pub(crate) struct LoginCookie {
    name: &'static str,
    attributes: String,
    /// The origin of `public_url` with the other scheme. Its page may be anyone's: without TLS, the network can change it.
    insecure_origin: Option<String>,
}

impl LoginCookie {
    pub(crate) fn new(settings: &Settings) -> Self {
        let origin = settings.public_url.as_deref().and_then(url_origin);
        let secure_authority = origin.as_deref().and_then(|origin| origin.strip_prefix("https://"));
        let prefix = settings.base_path();
        let (name, secure) = match (secure_authority, prefix) {
            (None, _) => ("toolhub_session", ""),
            // Browsers accept this name only for the whole host.
            (Some(_), "") => ("__Host-toolhub_session", "; Secure"),
            (Some(_), _) => ("__Secure-toolhub_session", "; Secure"),
        };
        let path = if prefix.is_empty() { "/" } else { prefix };
        let attributes = format!("; HttpOnly; SameSite=Strict; Path={path}{secure}");
        Self { name, attributes, insecure_origin: secure_authority.map(|authority| format!("http://{authority}")) }
    }

    /// The value of `Set-Cookie` for a login with this secret.
    pub(crate) fn set(&self, secret: &str) -> Option<HeaderValue> {
        self.header(&format!("{secret}{}", self.attributes))
    }

    /// The value of `Set-Cookie` that removes the cookie.
    pub(crate) fn clear(&self) -> Option<HeaderValue> {
        self.header(&format!("{}; Max-Age=0", self.attributes))
    }

    fn header(&self, rest: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("{}={rest}", self.name)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// The secrets in the cookies of a request; none if it does not come from the server's own page. `origin_check` has accepted its
    /// `Origin` and `Sec-Fetch-Site` before.
    ///
    /// # Errors
    /// When nothing says where a request comes from that may change something.
    pub(crate) fn secrets<'a>(&self, method: &Method, headers: &'a HeaderMap) -> Result<Vec<&'a str>, Problem> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let own = pairs.filter(|(name, _)| *name == self.name).map(|(_, secret)| secret);
        let secrets: Vec<_> = own.take(MAX_COOKIES).collect();
        if secrets.is_empty() {
            return Ok(secrets);
        }
        Ok(if self.is_of_own_page(method, headers)? { secrets } else { Vec::new() })
    }

    fn is_of_own_page(&self, method: &Method, headers: &HeaderMap) -> Result<bool, Problem> {
        let has_own_origin = |origin: &HeaderValue| {
            let origin = origin.to_str().unwrap_or_default();
            !self.insecure_origin.as_deref().is_some_and(|insecure| insecure.eq_ignore_ascii_case(origin))
        };
        match (headers.get(FETCH_SITE), headers.get(header::ORIGIN)) {
            (_, Some(origin)) => Ok(has_own_origin(origin)),
            (Some(site), None) => Ok(site == "same-origin"),
            // Browsers leave both out on plain HTTP; then a read has been caused by a page of this host.
            (None, None) if matches!(*method, Method::GET | Method::HEAD) => Ok(true),
            (None, None) => Err(Problem::new(
                Code::FORBIDDEN,
                "a login counts only for requests of the dashboard, and this one has neither `Origin` nor `Sec-Fetch-Site`",
            )
            .hint("send a key: `Authorization: Bearer thk_…`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(public_url: Option<&str>, cookie: &str) {
        let settings = Settings { public_url: public_url.map(str::to_owned), ..Settings::default() };
        assert_eq!(LoginCookie::new(&settings).set("x").unwrap(), cookie);
    }

    #[test]
    fn the_cookie_is_as_strict_as_the_address_allows() {
        check(None, "toolhub_session=x; HttpOnly; SameSite=Strict; Path=/");
        check(Some("http://a.example/hub/"), "toolhub_session=x; HttpOnly; SameSite=Strict; Path=/hub");
        check(Some("https://a.example"), "__Host-toolhub_session=x; HttpOnly; SameSite=Strict; Path=/; Secure");
        check(
            Some("https://a.example/hub"),
            "__Secure-toolhub_session=x; HttpOnly; SameSite=Strict; Path=/hub; Secure",
        );
    }
}

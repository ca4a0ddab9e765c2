//! Decides whether and how to follow a redirect.
//!
//! In: the request that was sent, and the head of its response. Out: the next request, `None` if the response is no redirect, or why it
//! is refused. Credentials are dropped when the origin changes.

use hyper::{
    HeaderMap, Method, StatusCode,
    body::Bytes,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION},
};

use toolhub_net::{Origin, Url, request_target};

use super::{Redirects, plan::Plan, request::OutgoingRequest, request_error::RequestError};

/// Maximum number of redirects per call.
const MAX_REDIRECTS: usize = 5;

/// A request to one origin.
pub(crate) struct Hop {
    pub(crate) origin: Origin,
    pub(crate) outgoing: OutgoingRequest,
    /// Number of redirects followed so far.
    pub(crate) redirect_count: usize,
    /// Whether an earlier request may have had an effect, as with a 303 after a POST, which points to the result.
    pub(crate) after_side_effect: bool,
}

/// The headers kept on cross-origin redirects, unless they are marked as sensitive.
const CROSS_ORIGIN_HEADERS: [&str; 6] =
    ["traceparent", "tracestate", "accept", "accept-encoding", "user-agent", "content-type"];

pub(crate) fn next_hop(
    plan: &Plan,
    hop: &Hop,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<Hop>, RequestError> {
    let is_redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let (true, Some(location)) = (is_redirect, location) else { return Ok(None) };
    let refused = |reason: String| RequestError::Redirect(format!("{} responded {status}: {reason}", hop.origin));
    if plan.redirects == Redirects::Never {
        return Err(refused("redirects are disabled (`redirects`)".into()));
    }
    if hop.redirect_count >= MAX_REDIRECTS {
        return Err(refused(format!("more than {MAX_REDIRECTS} redirects")));
    }
    let current = Url::parse(&format!("{}{}", hop.origin, hop.outgoing.target));
    let target =
        current.and_then(|current| current.join(location)).map_err(|_| refused("`Location` is not a URL".into()))?;
    let origin = Origin::from_url(&target)
        .ok_or_else(|| refused(format!("redirect to the scheme `{}`, not http or https", target.scheme())))?;
    if hop.origin.https && !origin.https {
        return Err(refused("redirect from https to http".into()));
    }
    let is_allowed = match &plan.redirects {
        Redirects::To(hosts) => origin.matches_any(hosts),
        Redirects::SameHost | Redirects::Never => false,
    };
    if origin.host != plan.origin.host && !is_allowed {
        return Err(refused(format!("redirect to {origin}; add its host to `redirects` if that is intended")));
    }
    let mut outgoing = hop.outgoing.clone();
    outgoing.target = request_target(&target);
    // The standard permits to turn a POST into a GET here, and all common clients do.
    let becomes_get = status == StatusCode::SEE_OTHER && outgoing.method != Method::HEAD
        || matches!(status.as_u16(), 301 | 302) && outgoing.method == Method::POST;
    let after_side_effect = hop.after_side_effect || becomes_get && !hop.outgoing.method.is_safe();
    if becomes_get {
        outgoing.method = Method::GET;
        outgoing.body = Bytes::new();
        outgoing.headers.remove(CONTENT_TYPE);
    }
    if origin != hop.origin {
        let is_secret = |name: &HeaderName| outgoing.headers.get_all(name).iter().any(HeaderValue::is_sensitive);
        let keep = |name: &HeaderName| CROSS_ORIGIN_HEADERS.contains(&name.as_str()) && !is_secret(name);
        let dropped: Vec<HeaderName> = outgoing.headers.keys().filter(|name| !keep(name)).cloned().collect();
        dropped.iter().for_each(|name| drop(outgoing.headers.remove(name)));
    }
    Ok(Some(Hop { origin, outgoing, redirect_count: hop.redirect_count + 1, after_side_effect }))
}

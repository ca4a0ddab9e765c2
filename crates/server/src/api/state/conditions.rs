//! Preconditions on a state: `If-Match` and `If-None-Match`.
//!
//! In: headers. Out: a condition that becomes part of the write. An entity tag is accepted without quotes too. Any other text
//! matches nothing, also a version number: a state that is deleted and created again has the same numbers again.

use axum::http::{HeaderMap, HeaderName, StatusCode, header, request::Parts};
use serde_json::json;
use toolhub_core::{ContextId, StateCondition, StateError, StateKind, StateTag, ids::Tenant};

use super::entry::{ETag, precondition_problem, state_problem};
use crate::{
    app::App,
    extract::FromParts,
    operation::Operation,
    problem::{ApiResult, Code, Problem},
};

/// `If-Match`: write only if the state has one of these tags.
#[derive(Debug)]
pub(super) struct IfMatch(Option<TagCondition>);

/// `If-None-Match`: read only if the state has another version; with `*`, write only if there is none.
#[derive(Debug)]
pub(super) struct IfNoneMatch(Option<TagCondition>);

/// The value of one of these headers.
#[derive(Debug, PartialEq, Eq)]
enum TagCondition {
    /// `*`
    Any,
    /// Tags, as they were sent.
    OneOf(Vec<String>),
}

/// The condition of a write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Precondition {
    pub(super) condition: StateCondition,
}

impl Precondition {
    /// The problem for an error: a conflict becomes 412 if the client sent a condition.
    pub(super) fn to_problem(self, error: StateError) -> Problem {
        if self.condition == StateCondition::Any { state_problem(error) } else { precondition_problem(error) }
    }
}

impl IfMatch {
    /// The condition of a write, from both headers.
    pub(super) async fn condition(
        &self,
        if_none_match: &IfNoneMatch,
        app: &App,
        tenant: &Tenant,
        (context, kind): (&ContextId, StateKind),
    ) -> ApiResult<Precondition> {
        let condition = match (&self.0, &if_none_match.0) {
            (Some(TagCondition::Any), _) => StateCondition::Present,
            (Some(TagCondition::OneOf(tags)), _) => {
                if kind == StateKind::Cache {
                    let why = "a state of kind `cache` has no versions to compare; omit `If-Match`";
                    return Err(Problem::new(Code::INVALID_REQUEST, why));
                }
                match tags.iter().filter_map(|tag| parse_tag(tag)).collect::<Vec<_>>()[..] {
                    [] => return Err(no_tag_problem(tags)),
                    [tag] => StateCondition::Tag(tag),
                    ref several => resolve_tags(several, app, tenant, (context, kind)).await?,
                }
            }
            (None, Some(TagCondition::Any)) => StateCondition::Absent,
            (None, Some(TagCondition::OneOf(_))) => {
                let why = "`If-None-Match` accepts only `*` here: write only if there is no state yet";
                return Err(Problem::new(Code::INVALID_REQUEST, why));
            }
            (None, None) => StateCondition::Any,
        };
        Ok(Precondition { condition })
    }
}

/// Of several tags, the current one; the first if none of them is current.
async fn resolve_tags(
    tags: &[StateTag],
    app: &App,
    tenant: &Tenant,
    (context, kind): (&ContextId, StateKind),
) -> ApiResult<StateCondition> {
    let entry = app.hub().state().get_state(tenant, context, kind).await.map_err(state_problem)?;
    let current = entry.and_then(|entry| entry.tag).filter(|tag| tags.contains(tag));
    Ok(current.or(tags.first().copied()).map_or(StateCondition::Any, StateCondition::Tag))
}

/// The problem for an `If-Match` in which nothing is a tag that this server made.
fn no_tag_problem(tags: &[String]) -> Problem {
    let why = format!("`If-Match: {}` is not an `ETag` of a state", tags.join(", "));
    Problem::new(Code::STATE_CONFLICT, why)
        .status(StatusCode::PRECONDITION_FAILED.as_u16())
        .hint("send the `ETag` header of the last response unchanged; a version number is not enough")
}

impl IfNoneMatch {
    /// Whether the entry's tag is one of those in the header.
    pub(super) fn matches(&self, tag: &ETag) -> bool {
        let strip = |tag: &str| tag.trim_start_matches("W/").trim_matches('"').to_owned();
        match &self.0 {
            None => false,
            Some(TagCondition::Any) => true,
            Some(TagCondition::OneOf(tags)) => tags.iter().any(|candidate| strip(candidate) == strip(tag.as_str())),
        }
    }
}

/// The tag of a state. A weak tag is none: it must not be used for writes.
fn parse_tag(tag: &str) -> Option<StateTag> {
    tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap_or(tag).parse().ok()
}

impl TagCondition {
    fn from_headers(headers: &HeaderMap, name: HeaderName) -> Option<Self> {
        let values = headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("?"));
        let tags = values.flat_map(|value| value.split(',')).map(str::trim).filter(|tag| !tag.is_empty());
        let tags: Vec<String> = tags.map(str::to_owned).collect();
        match tags.first()?.as_str() {
            "*" => Some(Self::Any),
            _ => Some(Self::OneOf(tags)),
        }
    }
}

impl FromParts for IfMatch {
    fn describe(operation: &mut Operation<'_>) {
        let what = "Write only if the state has this `ETag`. `*` for any.";
        operation.header("If-Match", what, &json!({"type": "string", "examples": ["\"3-9c1f5b0a2d7e4411\""]}));
    }

    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        Ok(Self(TagCondition::from_headers(&parts.headers, header::IF_MATCH)))
    }
}

impl FromParts for IfNoneMatch {
    fn describe(operation: &mut Operation<'_>) {
        let what = "Read only if the state has another `ETag`. With `*`, write only if there is no state.";
        operation.header(
            "If-None-Match",
            what,
            &json!({"type": "string", "examples": ["*", "\"3-9c1f5b0a2d7e4411\""]}),
        );
    }

    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        Ok(Self(TagCondition::from_headers(&parts.headers, header::IF_NONE_MATCH)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_read_with_or_without_quotes_and_from_nothing_else() {
        for (text, is_tag) in [
            ("\"3-00000000000000ab\"", true),
            ("3-00000000000000ab", true),
            ("W/\"3-00000000000000ab\"", false),
            ("\"3-00000000000000ab", false),
            ("\"3\"", false),
            ("3", false),
            ("\"\"", false),
            ("\"abc\"", false),
        ] {
            assert_eq!(parse_tag(text).is_some(), is_tag, "{text}");
        }
    }
}

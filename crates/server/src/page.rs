//! Pagination of lists: `limit` and `cursor` of the query, and the response with the next cursor.
//!
//! In: `limit` and `cursor` of a query, and the items a handler found. Out: `{"items": […], "nextCursor": …}` and a
//! `Link` to the next page.
//!
//! A handler takes a [`ListQuery`], or the type that [`list_query!`] defines with its filters, and [`RequestUri`]:
//!
//! ```text
//! let after = page::decode_cursor(query.cursor.as_ref(), "threads")?;
//! let mut items = …;                                   // all of them, or the first `limit.plus_one()`
//! let next = query.limit.truncate(&mut items).map(|last| last.id.to_string());
//! Ok(uri.list_response("threads", items, next))
//! ```

use std::{fmt, marker::PhantomData, str::FromStr};

use axum::{
    http::{HeaderValue, Uri, header, request::Parts},
    response::{IntoResponse, Response},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::{RawValue, to_raw_value};
use toolhub_core::page_budget::LIST_PAGE_BYTES;

use crate::{
    app::App,
    cursor,
    extract::FromParts,
    json::Json,
    problem::{ApiResult, Code, Problem},
};

const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 500;

/// The largest number of items on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit(usize);

impl Limit {
    /// The number, from 1 to 500.
    pub(crate) fn get(self) -> usize {
        self.0
    }

    /// One more than the limit: finding it shows that there is a next page.
    pub(crate) fn plus_one(self) -> usize {
        self.0 + 1
    }

    /// Truncates the items to one page. Returns the last item of the page if there were more.
    pub(crate) fn truncate<T>(self, items: &mut Vec<T>) -> Option<&T> {
        let has_more = items.len() > self.0;
        items.truncate(self.0);
        items.last().filter(|_| has_more)
    }
}

impl Default for Limit {
    fn default() -> Self {
        Self(DEFAULT_LIMIT)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct LimitVisitor;
        impl de::Visitor<'_> for LimitVisitor {
            type Value = Limit;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "`limit` as a whole number from 1 to {MAX_LIMIT}")
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Limit, E> {
                let number = usize::try_from(number).ok().filter(|number| (1..=MAX_LIMIT).contains(number));
                number.map(Limit).ok_or_else(|| E::custom(format!("`limit` is a whole number from 1 to {MAX_LIMIT}")))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Limit, E> {
                self.visit_u64(text.parse().unwrap_or(0))
            }
        }
        // All query values are text.
        from.deserialize_any(LimitVisitor)
    }
}

impl JsonSchema for Limit {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Limit".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT,
            "description": "Largest number of items. A page may have fewer, even none, without being the last."})
    }
}

/// The position where the previous page ended.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Cursor(String);

impl JsonSchema for Cursor {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Cursor".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "description": "`nextCursor` of the previous page; absent for the first page."})
    }
}

/// Defines the query of a list: its filters, and `limit` and `cursor`. Other parameters are refused.
macro_rules! list_query {
    ($(#[$about:meta])* $vis:vis struct $name:ident { $($(#[$field_about:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        $vis struct $name {
            $($(#[$field_about])* $field: $type,)*
            #[serde(default)]
            $vis limit: $crate::page::Limit,
            $vis cursor: Option<$crate::page::Cursor>,
        }
    };
}
pub(crate) use list_query;

list_query! {
    /// The query of a list without filters.
    pub(crate) struct ListQuery {}
}

/// A page of items, and whether more follow it. `fetch` gets a number of items and the position after which they are; it may
/// return fewer, because they are large, but none only at the end of the list.
pub(crate) async fn fetch_page<T, P, E, F>(
    limit: Limit,
    after: Option<P>,
    position: impl Fn(&T) -> P,
    fetch: impl Fn(usize, Option<P>) -> F,
) -> Result<(Vec<T>, bool), E>
where
    F: Future<Output = Result<Vec<T>, E>>,
{
    let mut items = fetch(limit.plus_one(), after).await?;
    let mut has_more = items.len() > limit.get();
    if let Some(last) = items.last().filter(|_| !has_more) {
        let last = position(last);
        has_more = !fetch(1, Some(last)).await?.is_empty();
    }
    items.truncate(limit.get());
    Ok((items, has_more))
}

/// The position that a cursor names; `None` for the first page.
pub(crate) fn decode_cursor(cursor: Option<&Cursor>, list: &str) -> ApiResult<Option<String>> {
    let foreign = || {
        Problem::new(Code::INVALID_REQUEST, "the cursor does not belong to this list")
            .hint("send `nextCursor` of the previous page unchanged, or omit `cursor` to start over")
    };
    cursor.map(|Cursor(text)| cursor::decode(list, text).ok_or_else(foreign)).transpose()
}

/// Like [`decode_cursor`], with the position parsed as a `T`.
pub(crate) fn decode_cursor_as<T: FromStr>(cursor: Option<&Cursor>, list: &str) -> ApiResult<Option<T>> {
    decode_cursor(cursor, list)?.map(|text| text.parse().map_err(|_| unknown_position())).transpose()
}

/// The problem for an intact cursor whose position does not exist in the list.
pub(crate) fn unknown_position() -> Problem {
    Problem::new(Code::INVALID_REQUEST, "the cursor names an unknown position in this list")
        .hint("omit `cursor` to start over")
}

/// The URI of this request, for the link to the next page.
#[derive(Debug, Clone)]
pub(crate) struct RequestUri(Uri);

impl FromParts for RequestUri {
    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        Ok(Self(parts.uri.clone()))
    }
}

impl RequestUri {
    /// A page of `list`, and the position where the next one begins, if there is one. For items of a small size.
    pub(crate) fn list_response<T: Serialize>(
        &self,
        list: &str,
        items: Vec<T>,
        next: Option<impl AsRef<str>>,
    ) -> ListResponse<T> {
        let items = items.into_iter().filter_map(|item| to_raw_value(&item).ok()).collect();
        self.response(list, items, next)
    }

    /// The same for items of any size: the page ends at 4 MiB. `position` returns the position after the items it gets.
    pub(crate) fn bounded_list_response<T: Serialize>(
        &self,
        list: &str,
        mut items: Vec<T>,
        next: Option<String>,
        position: impl Fn(&[T]) -> String,
    ) -> ListResponse<T> {
        let (mut raw_items, mut bytes) = (Vec::new(), 0);
        for item in items.iter().filter_map(|item| to_raw_value(item).ok()) {
            bytes += item.get().len();
            // The first item is on the page, whatever its size.
            if bytes > LIST_PAGE_BYTES && !raw_items.is_empty() {
                items.truncate(raw_items.len());
                return self.response(list, raw_items, Some(position(&items)));
            }
            raw_items.push(item);
        }
        self.response(list, raw_items, next)
    }

    fn response<T>(&self, list: &str, items: Vec<Box<RawValue>>, next: Option<impl AsRef<str>>) -> ListResponse<T> {
        let next_cursor = next.map(|position| cursor::encode(list, position.as_ref()));
        let link = next_cursor.as_ref().map(|cursor| self.next_link(cursor));
        ListResponse { list: List { items, next_cursor }, link, item: PhantomData }
    }

    /// The URI of this request with another cursor.
    fn next_link(&self, cursor: &str) -> String {
        let parameters = self.0.query().unwrap_or_default().split('&');
        let others = parameters.filter(|part| !part.is_empty() && part.split('=').next() != Some("cursor"));
        let cursor = format!("cursor={cursor}");
        let query = others.chain([cursor.as_str()]).collect::<Vec<_>>().join("&");
        format!("<{}?{query}>; rel=\"next\"", self.0.path())
    }
}

/// One page of a list.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "{T}List")]
pub(crate) struct List<T> {
    /// The items.
    pub(crate) items: Vec<T>,
    /// The `cursor` of the next page; null on the last page.
    // Always serialized, so that clients have one way to see the end.
    pub(crate) next_cursor: Option<String>,
}

/// The response with one page.
#[derive(Debug, Clone)]
pub(crate) struct ListResponse<T> {
    list: List<Box<RawValue>>,
    link: Option<String>,
    item: PhantomData<fn() -> T>,
}

impl<T> IntoResponse for ListResponse<T> {
    fn into_response(self) -> Response {
        let mut response = Json(self.list).into_response();
        if let Some(link) = self.link.and_then(|link| HeaderValue::try_from(link).ok()) {
            response.headers_mut().insert(header::LINK, link);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_keeps_everything_but_the_old_cursor() {
        let next = |uri: &'static str| RequestUri(Uri::from_static(uri)).next_link("ab");
        assert_eq!(next("/a"), "</a?cursor=ab>; rel=\"next\"");
        assert_eq!(next("http://h/a?cursor=00&limit=2&q=x%20y"), "</a?limit=2&q=x%20y&cursor=ab>; rel=\"next\"");
    }

    #[test]
    fn a_page_tells_of_a_next_one_only_where_something_is_left() {
        let cut = |limit: usize, items: usize| {
            let mut items: Vec<usize> = (0..items).collect();
            let last = Limit(limit).truncate(&mut items).copied();
            (items.len(), last)
        };
        assert_eq!([cut(2, 0), cut(2, 2), cut(2, 3), cut(2, 9)], [(0, None), (2, None), (2, Some(1)), (2, Some(1))]);
    }

    #[test]
    fn a_limit_is_read_from_text_and_from_numbers_within_its_bounds() {
        let read = |value: serde_json::Value| serde_json::from_value::<Limit>(value).ok().map(Limit::get);
        assert_eq!(read("7".into()), Some(7));
        assert_eq!(read(500.into()), Some(500));
        for wrong in ["0", "501", "-1", "x", "", "1.5"] {
            assert_eq!(read(wrong.into()), None, "{wrong}");
        }
    }
}

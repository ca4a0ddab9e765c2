//! Keys: who may use the server, and what they may do. A key is shown once, when it is made.

use std::time::Duration;

use axum::{
    extract::State,
    http::{Method, StatusCode},
    response::IntoResponse,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub_core::{
    ErrorKind,
    clock::Timestamp,
    ids::{Caller, Tenant},
    units::{self, DURATION_UNITS},
};

use crate::{
    app::App,
    extract::{Body, Params, Query},
    json::Json,
    keys::{KeyEntry, NewKey, Record},
    page::{self, List, ListQuery, RequestUri},
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
    settings::Auth,
};

pub(super) fn routes() -> Vec<Route> {
    let admin = Access::Needs(Scope::Admin);
    vec![
        // The answer is a secret, and written nowhere. A repetition is refused, because its name is taken.
        Route::new(Method::POST, "/api/v1/keys", admin, "keys", create)
            .handles_idempotency()
            .summary("Make a key; this answer is the only place it is ever shown")
            .json_response::<MadeKey>(201, "The key")
            .problems(&[Code::CONFLICT])
            .refusals(&[ErrorKind::StoreUnavailable])
            .audited("key.create"),
        Route::new(Method::GET, "/api/v1/keys", admin, "keys", list)
            .summary("Which keys there are, by id; never the keys themselves")
            .json_response::<List<KeyView>>(200, "A page of them")
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::DELETE, "/api/v1/keys/{id}", admin, "keys", revoke)
            .summary("Take a key back; it opens nothing from then on")
            .empty_response(204, "It is gone")
            .problems(&[Code::KEY_NOT_FOUND, Code::CONFLICT])
            .refusals(&[ErrorKind::StoreUnavailable])
            .audited("key.revoke"),
    ]
}

/// A key that shall be made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wish {
    /// What its holder is called in records, limits and rules.
    name: String,
    /// Whose threads it sees; those of the asking key where absent.
    tenant: Option<String>,
    /// What it may do; at least one thing.
    scopes: Vec<Scope>,
    /// How long it holds, such as `12h` or `30d`; until it is taken back where absent.
    expires_in: Option<String>,
}

/// A key, without its secret.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Key")]
struct KeyView {
    /// Its id; for a key of the config `config:` and its name.
    id: String,
    /// What its holder is called.
    name: String,
    /// Whose threads it sees.
    tenant: String,
    /// What it may do.
    scopes: Vec<Scope>,
    /// Where it comes from.
    origin: Origin,
    /// When it was made; not known of a key of the config.
    created_at: Option<Timestamp>,
    /// Who made it.
    created_by: Option<String>,
    /// When it ends.
    expires_at: Option<Timestamp>,
    /// When it was last used, roughly, as far as this server knows.
    last_used_at: Option<Timestamp>,
}

/// Where a key comes from.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "KeyOrigin")]
enum Origin {
    /// The config file.
    Config,
    /// This API.
    Store,
}

/// A key that was just made.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MadeKey {
    /// The key itself. It is shown only here.
    key: String,
    #[serde(flatten)]
    view: KeyView,
}

/// A key in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct KeyPath {
    /// The key's id.
    id: String,
}

async fn create(State(app): State<App>, who: Principal, Body(wish): Body<Wish>) -> ApiResult<impl IntoResponse> {
    let invalid = |detail: String| Problem::new(Code::INVALID_REQUEST, detail);
    let name = Caller::new(wish.name.as_str()).map_err(|why| invalid(why.to_string()))?;
    let tenant = wish.tenant.map_or(Ok(who.tenant), Tenant::new).map_err(|why| invalid(why.to_string()))?;
    if wish.scopes.is_empty() {
        return Err(invalid("a key without scopes could do nothing; name at least one".into()));
    }
    let span = |text: &str| {
        parse_lifetime(text)
            .ok_or_else(|| invalid("`expiresIn` is a whole number and a unit: s, m, h, d or w, such as `30d`".into()))
    };
    let now = app.now();
    let expires_at = wish.expires_in.as_deref().map(span).transpose()?.map(|span| now + span);
    let shelf = app.keys().key_store().await?;
    let taken = app.keys().config_keys().iter().any(|held| held.name == name)
        || shelf.all().iter().any(|stored| stored.record.name == name);
    if taken {
        return Err(Problem::new(
            Code::CONFLICT,
            format!("there is a key named `{name}`; records could not tell them apart"),
        )
        .hint("choose another name, or take the old one back first"));
    }
    let new = NewKey::make().map_err(|error| Problem::new(Code::INTERNAL, error.to_string()))?;
    let mut scopes = wish.scopes;
    scopes.sort_unstable();
    scopes.dedup();
    let record = Record {
        id: new.id.into(),
        name,
        tenant,
        hash: new.hash,
        scopes,
        created_at: now,
        created_by: who.caller,
        expires_at,
        last_used_at: None,
    };
    shelf.add(&record).await?;
    Ok((StatusCode::CREATED, Json(MadeKey { key: new.key, view: KeyView::from_record(&record, None) })))
}

async fn list(
    State(app): State<App>,
    Query(query): Query<ListQuery>,
    here: RequestUri,
) -> ApiResult<impl IntoResponse> {
    let after = page::decode_cursor(query.cursor.as_ref(), "keys")?.unwrap_or_default();
    let stored = app.keys().key_store().await?.all();
    let fixed = app.keys().config_keys();
    let fixed = fixed.iter().map(KeyView::from_config);
    let mut all: Vec<_> =
        fixed.chain(stored.iter().map(|stored| KeyView::from_record(&stored.record, stored.last_used()))).collect();
    all.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    all.retain(|view| view.id > after);
    let next = query.limit.truncate(&mut all).map(|last| last.id.clone());
    Ok(here.list_response("keys", all, next))
}

async fn revoke(State(app): State<App>, Params(KeyPath { id }): Params<KeyPath>) -> ApiResult<StatusCode> {
    if app.keys().config_keys().iter().any(|held| held.id == id) {
        return Err(Problem::new(Code::CONFLICT, "the key stands in the config; it goes by taking it out there"));
    }
    let shelf = app.keys().key_store().await?;
    let administers = shelf.get(&id).is_some_and(|stored| stored.record.scopes.contains(&Scope::Admin));
    if administers && matches!(app.settings().auth, Auth::Keys(_)) && !app.keys().has_admin_key(Some(&id), app.now()) {
        let why = "it is the last key with the scope `admin`; nobody could make another one";
        return Err(Problem::new(Code::CONFLICT, why).hint("make another key with the scope `admin` first"));
    }
    match shelf.remove(&id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::new(Code::KEY_NOT_FOUND, "there is no key of this id")),
    }
}

impl KeyView {
    fn from_config(held: &KeyEntry) -> Self {
        Self {
            id: held.id.to_string(),
            name: held.name.to_string(),
            tenant: held.tenant.to_string(),
            scopes: held.scopes.iter().collect(),
            origin: Origin::Config,
            created_at: None,
            created_by: None,
            expires_at: held.expires,
            last_used_at: held.last_used(),
        }
    }

    fn from_record(record: &Record, last_used: Option<Timestamp>) -> Self {
        Self {
            id: record.id.to_string(),
            name: record.name.to_string(),
            tenant: record.tenant.to_string(),
            scopes: record.scopes.clone(),
            origin: Origin::Store,
            created_at: Some(record.created_at),
            created_by: Some(record.created_by.to_string()),
            expires_at: record.expires_at,
            last_used_at: last_used,
        }
    }
}

/// `90s`, `5m`, `12h`, `30d`, `2w`: from a second to a century.
fn parse_lifetime(text: &str) -> Option<Duration> {
    const CENTURY: u64 = 100 * 365 * 86_400;
    // Milliseconds are for shorter things than keys.
    let [(number, scale)] = units::parse_amounts(text, &DURATION_UNITS[1..])?[..] else { return None };
    number.checked_mul(scale / 1_000).filter(|seconds| (1..=CENTURY).contains(seconds)).map(Duration::from_secs)
}

//! API keys: created, listed and revoked. A key is shown only when it is created.

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
        // The response contains the key, so it must not be stored. A repetition is refused because the name is taken.
        Route::new(Method::POST, "/api/v1/keys", admin, "keys", create)
            .handles_idempotency()
            .summary("Create a key; only this response shows it")
            .json_response::<CreatedKey>(201, "The key")
            .problems(&[Code::CONFLICT])
            .refusals(&[ErrorKind::StoreUnavailable])
            .audited("key.create"),
        Route::new(Method::GET, "/api/v1/keys", admin, "keys", list)
            .summary("Keys, by id, without their secrets")
            .json_response::<List<KeyView>>(200, "A page of keys")
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::DELETE, "/api/v1/keys/{id}", admin, "keys", revoke)
            .summary("Revoke a key; it is refused from then on")
            .empty_response(204, "The key is revoked")
            .problems(&[Code::KEY_NOT_FOUND, Code::CONFLICT])
            .refusals(&[ErrorKind::StoreUnavailable])
            .audited("key.revoke"),
    ]
}

/// The key to create.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CreateKey {
    /// The name of its holder in records, limits and rules.
    name: String,
    /// The tenant whose threads it can access; by default that of the requesting key.
    tenant: Option<String>,
    /// Its permissions; at least one.
    scopes: Vec<Scope>,
    /// How long it is valid, such as `12h` or `30d`; by default until it is revoked.
    expires_in: Option<String>,
}

/// A key, without its secret.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Key")]
struct KeyView {
    /// Its id; for a key of the config `config:` and its name.
    id: String,
    /// The name of its holder.
    name: String,
    /// The tenant whose threads it can access.
    tenant: String,
    /// Its permissions.
    scopes: Vec<Scope>,
    /// Where it is defined.
    origin: Origin,
    /// When it was created; unknown for a key of the config.
    created_at: Option<Timestamp>,
    /// The key that created it.
    created_by: Option<String>,
    /// When it expires.
    expires_at: Option<Timestamp>,
    /// When it was last used, roughly, as far as this server knows.
    last_used_at: Option<Timestamp>,
}

/// Where a key is defined.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "KeyOrigin")]
enum Origin {
    /// The config file.
    Config,
    /// This API.
    Store,
}

/// A key that was just created.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CreatedKey {
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

async fn create(
    State(app): State<App>,
    principal: Principal,
    Body(request): Body<CreateKey>,
) -> ApiResult<impl IntoResponse> {
    let invalid = |detail: String| Problem::new(Code::INVALID_REQUEST, detail);
    let name = Caller::new(request.name.as_str()).map_err(|why| invalid(why.to_string()))?;
    let tenant = request.tenant.map_or(Ok(principal.tenant), Tenant::new).map_err(|why| invalid(why.to_string()))?;
    if request.scopes.is_empty() {
        return Err(invalid("a key needs at least one scope".into()));
    }
    let lifetime = |text: &str| {
        parse_lifetime(text).ok_or_else(|| {
            invalid("`expiresIn` must be a whole number with a unit: s, m, h, d or w, such as `30d`".into())
        })
    };
    let now = app.now();
    let expires_at = request.expires_in.as_deref().map(lifetime).transpose()?.map(|lifetime| now + lifetime);
    let key_store = app.keys().key_store().await?;
    let is_taken = app.keys().config_keys().iter().any(|entry| entry.name == name)
        || key_store.all().iter().any(|stored| stored.record.name == name);
    if is_taken {
        return Err(Problem::new(
            Code::CONFLICT,
            format!("a key named `{name}` exists already; records could not tell them apart"),
        )
        .hint("choose another name, or revoke the old key first"));
    }
    let new = NewKey::make().map_err(|error| Problem::new(Code::INTERNAL, error.to_string()))?;
    let mut scopes = request.scopes;
    scopes.sort_unstable();
    scopes.dedup();
    let record = Record {
        id: new.id.into(),
        name,
        tenant,
        hash: new.hash,
        scopes,
        created_at: now,
        created_by: principal.caller,
        expires_at,
        last_used_at: None,
    };
    key_store.add(&record).await?;
    Ok((StatusCode::CREATED, Json(CreatedKey { key: new.key, view: KeyView::from_record(&record, None) })))
}

async fn list(State(app): State<App>, Query(query): Query<ListQuery>, uri: RequestUri) -> ApiResult<impl IntoResponse> {
    let after = page::decode_cursor(query.cursor.as_ref(), "keys")?.unwrap_or_default();
    let stored = app.keys().key_store().await?.all();
    let config_entries = app.keys().config_keys();
    let config_keys = config_entries.iter().map(KeyView::from_config);
    let mut all: Vec<_> = config_keys
        .chain(stored.iter().map(|stored| KeyView::from_record(&stored.record, stored.last_used())))
        .collect();
    all.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    all.retain(|view| view.id > after);
    let next = query.limit.truncate(&mut all).map(|last| last.id.clone());
    Ok(uri.list_response("keys", all, next))
}

async fn revoke(State(app): State<App>, Params(KeyPath { id }): Params<KeyPath>) -> ApiResult<StatusCode> {
    if app.keys().config_keys().iter().any(|entry| entry.id == id) {
        return Err(Problem::new(Code::CONFLICT, "the key is defined in the config; remove it there"));
    }
    let key_store = app.keys().key_store().await?;
    let is_admin = key_store.get(&id).is_some_and(|stored| stored.record.scopes.contains(&Scope::Admin));
    if is_admin && matches!(app.settings().auth, Auth::Keys(_)) && !app.keys().has_admin_key(Some(&id), app.now()) {
        let why = "it is the last key with the scope `admin`; without it no key could be created";
        return Err(Problem::new(Code::CONFLICT, why).hint("create another key with the scope `admin` first"));
    }
    match key_store.remove(&id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::new(Code::KEY_NOT_FOUND, "there is no key with this id")),
    }
}

impl KeyView {
    fn from_config(entry: &KeyEntry) -> Self {
        Self {
            id: entry.id.to_string(),
            name: entry.name.to_string(),
            tenant: entry.tenant.to_string(),
            scopes: entry.scopes.iter().collect(),
            origin: Origin::Config,
            created_at: None,
            created_by: None,
            expires_at: entry.expires,
            last_used_at: entry.last_used(),
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
    const CENTURY: u64 = 100 * 365 * 86_400_000;
    // Milliseconds are too short a unit for the lifetime of a key.
    let millis = units::parse_with(text, &DURATION_UNITS[1..], 1).filter(|millis| (1..=CENTURY).contains(millis));
    millis.map(Duration::from_millis)
}

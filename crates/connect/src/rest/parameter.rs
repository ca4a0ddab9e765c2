//! Locations, serialization styles and bodies: how arguments are placed in a request.
//!
//! Plain values, set by an owner or built from an OpenAPI document; `plan.rs` checks them.

use serde_json::Value;

/// The part of a request that carries an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParameterLocation {
    /// A `{name}` in the path.
    Path,
    /// A query parameter.
    Query,
    /// A header.
    Header,
    /// A cookie.
    Cookie,
}

/// How a list or an object is serialized, in the terms of OpenAPI. Most styles serialize a scalar the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Style {
    /// `a,b`; for paths and headers.
    Simple,
    /// `.a.b`; for paths.
    Label,
    /// `;name=a;name=b`; for paths.
    Matrix,
    /// `name=a&name=b`, or `name=a,b`; for queries and cookies.
    Form,
    /// `name=a%20b`; for queries.
    SpaceDelimited,
    /// `name=a%7Cb`; for queries.
    PipeDelimited,
    /// `name[member]=a`, at any depth, and `name[0]=a` for lists; for queries.
    DeepObject,
    /// The value as JSON text; for every location.
    Json,
}

/// Maps an argument to a location in the request.
///
/// ```
/// use toolhub_connect::rest::{Parameter, Rest, Style};
///
/// let pets = Rest::get("https://pets.example/v1/owners/{id}/pets")
///     .parameter(Parameter::path("id").argument("owner"))
///     .parameter(Parameter::query("tags").style(Style::PipeDelimited).explode(false));
/// assert!(pets.problems().is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parameter {
    /// Where it is sent.
    pub location: ParameterLocation,
    /// Its name in the request.
    pub name: String,
    /// The name of the argument. Default: `name`.
    pub argument: String,
    /// How it is serialized.
    pub style: Style,
    /// Whether each member of a list or an object becomes its own pair.
    pub explode: bool,
}

impl Parameter {
    /// A `{name}` in the path, with the style `simple`.
    pub fn path(name: impl Into<String>) -> Self {
        Self::new(ParameterLocation::Path, name)
    }

    /// A query parameter, with the style `form`, exploded.
    pub fn query(name: impl Into<String>) -> Self {
        Self::new(ParameterLocation::Query, name)
    }

    /// A header, with the style `simple`.
    pub fn header(name: impl Into<String>) -> Self {
        Self::new(ParameterLocation::Header, name)
    }

    /// A cookie, with the style `form`, exploded.
    pub fn cookie(name: impl Into<String>) -> Self {
        Self::new(ParameterLocation::Cookie, name)
    }

    /// A parameter with the default style of OpenAPI for its location.
    pub fn new(location: ParameterLocation, name: impl Into<String>) -> Self {
        let name = name.into();
        let style = match location {
            ParameterLocation::Path | ParameterLocation::Header => Style::Simple,
            ParameterLocation::Query | ParameterLocation::Cookie => Style::Form,
        };
        Self { location, argument: name.clone(), name, style, explode: style == Style::Form }
    }

    /// Sets the argument, if its name differs.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.argument = argument.into();
        self
    }

    /// Sets the style, and resets `explode` to the default of OpenAPI for it.
    #[must_use]
    pub fn style(mut self, style: Style) -> Self {
        self.style = style;
        self.explode = matches!(style, Style::Form | Style::DeepObject);
        self
    }

    /// Sets whether each member of a list or an object becomes its own pair.
    #[must_use]
    pub fn explode(mut self, explode: bool) -> Self {
        self.explode = explode;
        self
    }
}

/// The body of a request. For templates see [`Rest`](super::Rest).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Body {
    /// JSON whose strings are templates. A string that is exactly `{argument}` becomes the argument itself, whatever its type:
    /// `Body::Json("{body}".into())` sends one argument as the whole body.
    Json(Value),
    /// A form: field names, and templates of their values.
    Form(Vec<(String, String)>),
    /// A form built from one argument: each member of that object is a field.
    FormFromArgument {
        /// The argument.
        argument: String,
        /// Fields that differ from the default: scalars and lists as `form`, exploded; objects as JSON.
        fields: Vec<FormField>,
    },
    /// Text: one template.
    Text(String),
}

/// How one field of a form is serialized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormField {
    /// The name of the field.
    pub name: String,
    /// Its style: `form`, `spaceDelimited`, `pipeDelimited`, `deepObject` or JSON.
    pub style: Style,
    /// Whether each member of a list or an object becomes its own pair.
    pub explode: bool,
}

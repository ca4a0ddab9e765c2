//! Conversion of schemas to self-contained JSON Schema 2020-12 of limited size.

use serde_json::{Map, Value, json};
use toolhub_connect::openapi::{self, Options};
use toolhub_core::ToolHub;
use toolhub_testkit::soak;

use super::{document, import, plan, warnings};

/// A document whose one operation takes a body of this schema.
fn with_schema(version: &str, schema: Value, components: Value) -> Value {
    let body =
        json!({"required": true, "content": {"application/json": {"schema": {"type": "array", "items": schema}}}});
    let mut document = document(version, json!({"/a": {"post": {"operationId": "a", "requestBody": body}}}));
    document["components"] = json!({"schemas": components});
    document
}

/// Checks the conversion of a schema.
#[track_caller]
fn check(version: &str, schema: Value, expected: Value) {
    let plan = plan(&with_schema(version, schema.clone(), json!({})));
    assert_eq!(plan.schema["properties"]["body"]["items"], expected, "{version} {schema}");
}

#[test]
fn the_dialect_of_version_3_0_is_translated() {
    check("3.0.3", json!({"type": "string", "nullable": true}), json!({"type": ["string", "null"]}));
    check(
        "3.0.3",
        json!({"type": "string", "nullable": true, "enum": ["a"]}),
        json!({"type": ["string", "null"], "enum": ["a", null]}),
    );
    check(
        "3.0.3",
        json!({"nullable": true, "description": "either", "allOf": [{"type": "string"}]}),
        json!({"description": "either", "anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]}),
    );
    check(
        "3.0.3",
        json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}),
        json!({"type": "integer", "exclusiveMinimum": 1}),
    );
    check(
        "3.0.3",
        json!({"type": "integer", "maximum": 9, "exclusiveMaximum": false}),
        json!({"type": "integer", "maximum": 9}),
    );
    check("3.0.3", json!({"type": "integer", "example": 5}), json!({"type": "integer", "examples": [5]}));
    check(
        "3.0.3",
        json!({"type": "string", "xml": {"name": "x"}, "externalDocs": {"url": "x"}, "x-order": 1, "format": "date", "default": "d"}),
        json!({"type": "string", "format": "date", "default": "d"}),
    );
}

#[test]
fn version_3_1_is_json_schema_already() {
    let schema = json!({"type": ["string", "null"], "const": "a", "examples": ["a"], "exclusiveMinimum": 3});
    check("3.1.0", schema.clone(), schema);
    check("3.2.0", json!({"type": ["string", "null"]}), json!({"type": ["string", "null"]}));
    // `nullable` is not a keyword there.
    check("3.1.0", json!({"type": "string", "nullable": true}), json!({"type": "string"}));
    check("3.1.0", json!({"$id": "urn:x", "$schema": "y", "type": "string"}), json!({"type": "string"}));
}

#[test]
fn slips_of_a_document_cost_one_word_and_not_the_operation() {
    let odd = json!({
        "type": "file", "required": true, "minLength": "3", "maxLength": -1, "multipleOf": 0, "enum": [], "pattern": 7, "uniqueItems": "yes",
        "format": {}, "minimum": null, "allOf": [], "items": 3, "properties": [],
    });
    check("3.0.0", odd, json!({"type": "string"}));
    check("3.0.0", json!({"type": "any"}), json!({}));
    check("3.0.0", json!({"type": "object", "required": ["a", "a"]}), json!({"type": "object", "required": ["a"]}));
    check(
        "3.1.0",
        json!({"patternProperties": {"^a": {"type": "string"}, "^(?!a)": {}}, "additionalProperties": false}),
        json!({"patternProperties": {"^a": {"type": "string"}}}),
    );
    // A property that is both required and forbidden is not required.
    let both = |required: Value| json!({"type": "object", "properties": {"a": {}}, "required": required, "additionalProperties": false});
    check("3.0.0", both(json!(["a", "b"])), both(json!(["a"])));
    check("3.1.0", json!({"items": [{"type": "string"}]}), json!({"prefixItems": [{"type": "string"}]}));
    let imported =
        import(&with_schema("3.0.0", json!({"type": "string", "pattern": "^(?=a)b"}), json!({})), &Options::default());
    assert_eq!(warnings(&imported), ["POST /a: the pattern `^(?=a)b` is not checked before the request"]);
}

#[test]
fn what_only_answers_hold_is_left_out_wherever_that_is_said() {
    let components = json!({"Id": {"type": "string", "readOnly": true}});
    let properties = json!({
        "plain": {"readOnly": true}, "behind": {"$ref": "#/components/schemas/Id"}, "layered": {"allOf": [{"type": "string"}, {"readOnly": true}]},
        "name": {"type": "string"},
    });
    let schema = json!({"type": "object", "properties": properties, "required": ["plain", "name", "behind"]});
    let plan = plan(&with_schema("3.0.0", schema, components));
    let expected = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    assert_eq!(plan.schema["properties"]["body"]["items"], expected);
}

#[test]
fn forms_ask_for_the_word_that_stands_for_them() {
    let animal = json!({
        "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
        "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/components/schemas/Cat", "kitten": "#/components/schemas/Cat", "dog": "Dog"}},
    });
    let object = json!({"type": "object", "properties": {"kind": {"type": "string"}}});
    let plan = plan(&with_schema("3.0.0", animal, json!({"Cat": object, "Dog": object})));
    assert_eq!(
        plan.schema["properties"]["body"]["items"]["oneOf"],
        json!([
            {"$ref": "#/$defs/Cat", "properties": {"kind": {"enum": ["cat", "kitten"]}}, "required": ["kind"]},
            {"$ref": "#/$defs/Dog", "properties": {"kind": {"enum": ["dog"]}}, "required": ["kind"]},
        ])
    );
}

#[test]
fn references_lead_into_definitions_and_short_ones_are_written_out() {
    let components = json!({
        "Pet": {"type": "object", "properties": {"size": {"$ref": "#/components/schemas/Size"}, "owner": {"$ref": "#/components/schemas/deep/Pet"}}},
        "Size": {"type": "string", "enum": ["s", "l"]},
        "deep": {"Pet": {"type": "object", "properties": {"name": {"type": "string"}}}},
    });
    let plan =
        plan(&with_schema("3.0.0", json!({"$ref": "#/components/schemas/Pet", "description": "ours"}), components));
    assert_eq!(plan.schema["properties"]["body"]["items"], json!({"$ref": "#/$defs/Pet", "description": "ours"}));
    assert_eq!(
        plan.schema["$defs"],
        json!({
            "Pet": {"type": "object", "properties": {"size": {"type": "string", "enum": ["s", "l"]}, "owner": {"$ref": "#/$defs/Pet_2"}}},
            "Pet_2": {"type": "object", "properties": {"name": {"type": "string"}}},
        })
    );
}

#[tokio::test]
async fn a_schema_that_contains_itself_is_checked_at_every_depth() {
    let tree = json!({"type": "object", "required": ["n"], "properties": {
        "n": {"type": "integer"},
        "children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}},
    }});
    let document = with_schema("3.0.0", json!({"$ref": "#/components/schemas/Tree"}), json!({"Tree": tree}));
    let imported = import(&document, &Options { trust: true, ..Options::default() });
    assert!(imported.warnings.is_empty(), "{:?}", imported.warnings);
    let hub = ToolHub::builder().tools(imported.tools()).build().await.unwrap();
    let wrong = json!({"body": [{"n": 1, "children": [{"n": 2, "children": [{"n": "three"}]}]}]});
    let outcome = hub.call("a", wrong).await;
    assert!(outcome.model_text().contains("body[0].children[0].children[0].n"), "{}", outcome.model_text());
}

#[test]
fn a_schema_that_is_too_large_is_cut_and_says_so() {
    let member = json!({"type": "string", "description": "word ".repeat(40)});
    let big: Map<String, Value> = (0..60).map(|at| (format!("m{at}"), member.clone())).collect();
    let layer = |at: usize| json!({"type": "object", "properties": big, "required": ["m0"], "allOf": [{"properties": {"next": {"$ref": format!("#/components/schemas/L{}", at + 1)}}}]});
    let mut components: Map<String, Value> = (0..40).map(|at| (format!("L{at}"), layer(at))).collect();
    components.insert("L40".into(), json!({"type": "object"}));
    let imported = import(
        &with_schema("3.0.0", json!({"$ref": "#/components/schemas/L0"}), components.into()),
        &Options::default(),
    );
    assert_eq!(
        warnings(&imported),
        ["POST /a: its schema is large; deeply nested parts are neither described nor checked"]
    );
    let schema = &imported.plans[0].schema;
    assert!(schema.to_string().len() <= 64 * 1024);
    assert_eq!(schema["$defs"]["L0"]["required"], json!(["m0"]), "shallow parts keep their detail");
}

#[test]
fn hostile_documents_are_cut_or_refused_in_no_time() {
    let reference = |to: &str| json!({"$ref": format!("#/components/schemas/{to}")});
    // Each definition uses the next one twice.
    let double = |at: usize| json!({"allOf": [reference(&format!("D{}", at + 1)), reference(&format!("D{}", at + 1))]});
    let mut doubling: Map<String, Value> = (0..200).map(|at| (format!("D{at}"), double(at))).collect();
    doubling.insert("D200".into(), json!({"type": "object", "properties": {}}));
    // Circular references without content.
    let circle = json!({"D0": {"anyOf": [reference("D1")]}, "D1": {"allOf": [reference("D0")]}});
    let alone = json!({"D0": reference("D0")});
    // Wide and circular `allOf`.
    let wide = json!({"D0": {"allOf": vec![reference("D1"); 500]}, "D1": {"allOf": vec![reference("D0"); 500]}});
    let many: Map<String, Value> =
        (0..3_000).map(|at| (format!("D{at}"), json!({"items": reference(&format!("D{}", at + 1))}))).collect();
    let deep = (0..90).fold(json!({"type": "string"}), |inner, _| json!({"items": inner}));
    for components in [doubling.into(), circle, alone, wide, many.into(), json!({"D0": deep})] {
        let imported = import(&with_schema("3.1.0", reference("D0"), components), &Options::default());
        assert_eq!(imported.plans.len() + imported.skipped(), 1);
        assert!(!imported.warnings.is_empty());
    }
    // The same as a body, and as a member of one.
    let wide = json!({"allOf": vec![json!({"$ref": "#/components/schemas/W"}); 500]});
    let body = json!({"required": true, "content": {"application/json": {"schema": {"properties": {"w": wide}, "allOf": [wide]}}}});
    let mut document_of_wide = document("3.0.0", json!({"/a": {"post": {"requestBody": body}}}));
    document_of_wide["components"] = json!({"schemas": {"W": wide}});
    import(&document_of_wide, &Options::default());
    // Parameters with circular references.
    let mut looped = document("3.0.0", json!({"/a": {"get": {"parameters": [{"$ref": "#/components/parameters/A"}]}}}));
    looped["components"] =
        json!({"parameters": {"A": {"$ref": "#/components/parameters/B"}, "B": {"$ref": "#/components/parameters/A"}}});
    assert!(
        warnings(&import(&looped, &Options::default()))[0].contains("is circular or a chain of too many references")
    );
}

#[test]
fn yaml_is_read_like_json_and_its_aliases_cannot_multiply() {
    let yaml = "
openapi: 3.1.0
info: {title: Pets, version: 1}
servers: [{url: https://pets.example}]
x-common: &answers
  200: {description: fine}
paths:
  /pets:
    get:
      operationId: list
      parameters:
        - {name: on, in: query, schema: {type: string, enum: [yes, no, 'on']}}
      responses: *answers
";
    let imported = openapi::import(yaml, &Options::default()).unwrap();
    assert_eq!(imported.plans[0].schema["properties"]["on"]["enum"], json!(["yes", "no", "on"]));
    assert_eq!(imported.version, "1");

    let mut bomb = String::from("openapi: 3.1.0\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = format!("*a{}, ", level - 1).repeat(10);
        bomb += &format!("a{level}: &a{level} [{before}]\n");
    }
    let error = openapi::import(&bomb, &Options::default()).unwrap_err().to_string();
    assert!(error.starts_with("the document is not valid YAML"), "{error}");
    let deep = "openapi: 3.1.0\nx: ".to_owned() + &"[".repeat(20_000);
    assert!(openapi::import(&deep, &Options::default()).is_err());
    let deep = r#"{"openapi": "3.1.0", "x": "#.to_owned() + &"[".repeat(20_000);
    assert!(openapi::import(&deep, &Options::default()).is_err());
}

/// A deterministic pseudo-random generator.
struct FuzzRng(u64);

impl FuzzRng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit.max(1)
    }

    /// Replaces a random part of a value.
    fn mutate(&mut self, value: &mut Value) {
        let deeper = self.below(8) > 0;
        match value {
            Value::Object(members) if deeper && !members.is_empty() => {
                let at = self.below(members.len());
                self.mutate(members.values_mut().nth(at).unwrap());
            }
            Value::Array(items) if deeper && !items.is_empty() => {
                let at = self.below(items.len());
                self.mutate(&mut items[at]);
            }
            other => {
                let odd = [
                    json!(null),
                    json!(true),
                    json!(-1),
                    json!(1e300),
                    json!(""),
                    json!("/{"),
                    json!("#/paths"),
                    json!([]),
                    json!({}),
                    json!([[]]),
                    json!({"$ref": "#"}),
                    json!({"$ref": "#/components/schemas/Pet"}),
                    json!("}{\u{0}"),
                    json!({"type": ["object", 3]}),
                    json!("https://[::1"),
                    json!({"allOf": [{"$ref": "#/components/schemas/Tree"}]}),
                    json!("名\n"),
                    json!("object"),
                ];
                *other = odd[self.below(odd.len())].clone();
            }
        }
    }
}

#[tokio::test]
async fn a_mangled_document_is_refused_or_gives_tools_that_can_be_registered() {
    let valid = json!({
        "openapi": "3.0.3", "info": {"title": "Pets", "version": "1"}, "security": [{"key": []}],
        "servers": [{"url": "https://{host}/v1", "variables": {"host": {"default": "pets.example"}}}],
        "paths": {
            "/pets/{id}": {
                "parameters": [{"$ref": "#/components/parameters/Id"}],
                "get": {"operationId": "show", "tags": ["pets"], "parameters": [
                    {"name": "fields", "in": "query", "style": "pipeDelimited", "explode": false, "schema": {"type": "array", "items": {"type": "string"}}},
                    {"name": "where", "in": "query", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}},
                ]},
                "patch": {"operationId": "change", "requestBody": {"required": true, "content": {
                    "application/json": {"schema": {"$ref": "#/components/schemas/Pet"}},
                }}},
            },
            "/trees": {"post": {"deprecated": true, "security": [], "requestBody": {"content": {
                "application/x-www-form-urlencoded": {"schema": {"$ref": "#/components/schemas/Tree"}, "encoding": {"n": {"style": "form"}}},
            }}}},
        },
        "components": {
            "parameters": {"Id": {"name": "id", "in": "path", "required": true, "schema": {"type": "integer", "minimum": 1, "exclusiveMinimum": true}}},
            "schemas": {
                "Pet": {"allOf": [
                    {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "pattern": "^a", "nullable": true}}},
                    {"properties": {"tree": {"$ref": "#/components/schemas/Tree"}, "made": {"readOnly": true}}},
                ]},
                "Tree": {"type": "object", "properties": {"n": {"enum": [1, 2]}, "inner": {"items": {"$ref": "#/components/schemas/Tree"}, "type": "array"}}},
            },
            "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
        },
    });
    let rounds = soak(150, 20_000);
    let mut rng = FuzzRng(7);
    let mut imported = 0;
    for round in 0..rounds {
        let mut document = valid.clone();
        for _ in 0..=rng.below(3) {
            rng.mutate(&mut document);
        }
        let Ok(found) = openapi::import_value(&document, &Options::default()) else { continue };
        let hub = ToolHub::builder().tools(found.tools()).build().await;
        assert!(hub.is_ok(), "{round}: {:?} of {document}", hub.err().map(|error| error.to_string()));
        imported += found.plans.len();
    }
    assert!(imported > rounds / 2, "too few operations were imported: {imported}");
}

//! Arbitrary arguments: no panic, one outcome, and a text that names the field.

use proptest::{collection, prelude::*, sample::select};
use toolhub::{Status, prelude::*};
use toolhub_testkit::soak;

/// Book a table.
#[derive(Debug, Deserialize, JsonSchema)]
#[allow(dead_code, reason = "the tool only looks at whether they can be read")]
struct Booking {
    name: String,
    #[schemars(range(min = 1, max = 12))]
    guests: u8,
    #[serde(default)]
    seat: Option<Seat>,
    #[serde(default)]
    #[schemars(length(max = 3))]
    wishes: Vec<Wish>,
    when: When,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Seat {
    Window,
    Garden,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "as above")]
struct Wish {
    what: String,
    #[serde(default)]
    urgent: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(dead_code, reason = "as above")]
enum When {
    Now,
    At { hour: u8, minute: u8 },
}

async fn book(booking: Booking) -> Result<u8, ToolError> {
    Ok(booking.guests)
}

/// JSON of any shape, with the names the tool knows, similar names, and others.
fn any_json() -> impl Strategy<Value = Value> {
    let names = || {
        select(vec![
            "name", "guests", "gests", "seat", "wishes", "when", "what", "kind", "hour", "minute", "", "a/b~c", "名",
        ])
    };
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..20i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
        select(vec!["window", "garden", "now", "at", "widow"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            collection::vec((names(), inner), 0..7).prop_map(|members| members
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect::<Value>()),
        ]
    })
}

/// Valid arguments, one of them perhaps spoilt, and whether they are still valid.
fn nearly_valid() -> impl Strategy<Value = (Value, bool)> {
    let valid =
        (1..=12u8, select(vec![json!("window"), json!(null)]), any::<bool>()).prop_map(|(guests, seat, now)| {
            let when = if now { json!({"kind": "now"}) } else { json!({"kind": "at", "hour": 19, "minute": 30}) };
            json!({"name": "Ann", "guests": guests, "seat": seat, "wishes": [{"what": "cake"}], "when": when})
        });
    let place = select(vec![
        "/name",
        "/guests",
        "/seat",
        "/wishes",
        "/wishes/0",
        "/wishes/0/what",
        "/when",
        "/when/kind",
        "/when/hour",
    ]);
    (valid, proptest::option::of((place, any_json()))).prop_map(|(mut arguments, spoil)| {
        let untouched = spoil.is_none();
        if let Some((place, value)) = spoil
            && let Some(at) = arguments.pointer_mut(place)
        {
            *at = value;
        }
        (arguments, untouched)
    })
}

fn case_count() -> u32 {
    soak(3_000, 200_000)
}

#[test]
fn random_arguments_never_panic_and_every_refusal_names_its_field() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let hub = runtime.block_on(ToolHub::builder().tool(tool("book", book).read_only()).build()).unwrap();
    let mut accepted = 0;
    let mut refused = 0;
    let config = ProptestConfig { cases: case_count(), failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let counts = std::cell::RefCell::new((&mut accepted, &mut refused));
    runner
        .run(&prop_oneof![any_json().prop_map(|any| (any, false)), nearly_valid()], |(arguments, valid)| {
            let fits = serde_json::from_value::<Booking>(arguments.clone()).is_ok();
            let outcome = runtime.block_on(async { hub.call("book", arguments.clone()).await });
            prop_assert!(!valid || outcome.is_success(), "refused what is valid: {arguments}");
            match outcome.error_kind() {
                None => {
                    prop_assert!(fits, "accepted what the type cannot read: {arguments}");
                    *counts.borrow_mut().0 += 1;
                }
                Some(kind) => {
                    prop_assert_eq!(kind, ErrorKind::ArgumentsInvalid);
                    prop_assert_eq!((outcome.status, outcome.effect), (Status::Error, Effect::None));
                    let error = outcome.error.as_ref().unwrap();
                    prop_assert!(!error.problems().is_empty());
                    for problem in error.problems() {
                        prop_assert!(!problem.field.is_empty());
                        prop_assert!(
                            error.model.contains(&problem.field),
                            "{} does not name {}",
                            error.model,
                            problem.field
                        );
                    }
                    *counts.borrow_mut().1 += 1;
                }
            }
            Ok(())
        })
        .unwrap();
    assert!(accepted > 100 && refused > 100, "{accepted} accepted, {refused} refused");
}

#[tokio::test]
async fn a_type_that_refuses_more_than_its_schema_names_the_field_too() {
    #[derive(Deserialize, JsonSchema)]
    struct Visit {
        #[serde(deserialize_with = "even")]
        #[schemars(with = "u32")]
        floor: u32,
    }
    fn even<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
        let floor = u32::deserialize(from)?;
        if floor % 2 == 0 { Ok(floor) } else { Err(serde::de::Error::custom("the lift stops at even floors only")) }
    }
    async fn visit(visit: Visit) -> Result<u32, ToolError> {
        Ok(visit.floor)
    }
    let hub = ToolHub::builder().tool(tool("visit", visit)).build().await.unwrap();
    assert!(hub.call("visit", json!({"floor": 4})).await.is_success());
    let outcome = hub.call("visit", json!({"floor": 3})).await;
    assert_eq!((outcome.error_kind(), outcome.effect), (Some(ErrorKind::ArgumentsInvalid), Effect::None));
    let text = outcome.model_text();
    assert!(text.contains("floor: ") && text.contains("even floors only"), "{text}");
}

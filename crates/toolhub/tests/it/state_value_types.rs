//! States of unusual types: values round-trip, also through another store.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use toolhub::{backend::Memory, prelude::*, testing::AssertOutcome};

/// Stores a value, and reads it in this hub, in another on the same store, and in one that imported an export.
async fn check<S>(value: S)
where
    S: ToolState + Clone + PartialEq + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let keep = {
        let value = value.clone();
        move |_: NoArguments, mut state: State<S>| {
            *state = value.clone();
            async { Ok::<_, ToolError>(()) }
        }
    };
    let look = {
        let value = value.clone();
        move |_: NoArguments, state: State<S>| {
            let same = *state == value;
            async move { Ok::<_, ToolError>(same) }
        }
    };
    let store = Arc::new(Memory::new());
    let on = |store: Arc<Memory>| {
        let hub = ToolHub::builder().shared_store(store).tool(tool("keep", keep.clone()));
        hub.tool(tool("look", look.clone()).read_only()).build()
    };
    let first = on(store.clone()).await.unwrap();
    first.call("keep", json!({})).thread("t").await.assert_success();
    let (second, moved) = (on(store).await.unwrap(), on(Arc::default()).await.unwrap());
    let text = first.state().export(&Tenant::default(), None).await.unwrap();
    moved.state().import(&Tenant::default(), &text).await.unwrap();
    for (hub, which) in [(first, "here"), (second, "there"), (moved, "moved")] {
        assert_eq!(hub.call("look", json!({})).thread("t").await.assert_success(), &json!(true), "{which} {value:?}");
        let written = hub.call("keep", json!({})).thread("t").await;
        written.assert_success();
    }
}

macro_rules! newtype_state {
    ($name:ident, $inside:ty) => {
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        struct $name($inside);
        impl ToolState for $name {
            const NAME: &'static str = "odd";
        }
    };
}
newtype_state!(Number, f64);
newtype_state!(Large, u64);
newtype_state!(Perhaps, Option<u32>);
newtype_state!(Tuple, (u8, String, Option<bool>));
newtype_state!(Text, String);
newtype_state!(Unit, ());
newtype_state!(List, Vec<f64>);

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
enum Light {
    #[default]
    Red,
    Green(u8),
    Blink {
        often: f32,
    },
}
impl ToolState for Light {
    const NAME: &'static str = "odd";
}

#[tokio::test]
async fn a_state_may_be_anything_that_json_can_hold() {
    for light in [Light::Red, Light::Green(3), Light::Blink { often: 0.1 }] {
        check(light).await;
    }
    check(Large(u64::MAX)).await;
    check(Perhaps(None)).await;
    check(Perhaps(Some(0))).await;
    check(Tuple((1, "\u{0}\u{2028}\"\\".into(), None))).await;
    check(Text("x".repeat(500_000))).await;
    check(Unit(())).await;
}

#[tokio::test]
async fn numbers_come_back_to_the_last_digit() {
    let mut bits = 7_u64;
    let dice = std::iter::repeat_with(move || {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from_bits(bits)
    });
    check(List(dice.filter(|number| number.is_finite()).take(2_000).collect())).await;
    check(Number(31.245_270_191_439_438)).await;
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Nest {
    inner: Option<Box<Nest>>,
}
impl ToolState for Nest {
    const NAME: &'static str = "odd";
}

fn nest(levels: usize) -> Nest {
    (1..levels).fold(Nest::default(), |inner, _| Nest { inner: Some(Box::new(inner)) })
}

#[tokio::test]
async fn what_is_nested_too_deeply_to_be_taken_elsewhere_is_not_kept() {
    check(nest(100)).await;
    for levels in [101, 120, 500] {
        let keep = move |_: NoArguments, mut state: State<Nest>| {
            *state = nest(levels);
            async { Ok::<_, ToolError>(()) }
        };
        let hub = ToolHub::builder().tool(tool("keep", keep)).build().await.unwrap();
        let outcome = hub.call("keep", json!({})).thread("t").await;
        outcome.assert_effect(Effect::Done).assert_error(ErrorKind::ToolError);
        let id = "t/odd".parse().unwrap();
        let stored = hub.state().get_state(&Tenant::default(), &id, StateKind::Business).await.unwrap();
        assert!(stored.is_none(), "{levels}");
    }
}

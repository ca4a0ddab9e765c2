//! The tools of most tests: a calculation, a cart, and a state in trait form.

use toolhub::{prelude::*, testing::TestClock};

/// Add two numbers.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Add {
    /// The first number.
    pub(crate) a: i64,
    /// The second number.
    pub(crate) b: i64,
}

pub(crate) async fn add(numbers: Add) -> Result<i64, ToolError> {
    numbers.a.checked_add(numbers.b).ok_or_else(|| ToolError::refused("the sum is too large"))
}

/// Put `qty` units of `sku` in the cart.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct AddItem {
    /// What to buy.
    pub(crate) sku: String,
    /// How many.
    #[schemars(range(min = 1))]
    pub(crate) qty: u32,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cart {
    pub(crate) lines: Vec<(String, u32)>,
}
impl ToolState for Cart {
    const NAME: &'static str = "cart";
}

pub(crate) async fn add_to_cart(item: AddItem, mut cart: State<Cart>, cx: CallContext) -> Result<usize, ToolError> {
    cart.lines.push((item.sku.clone(), item.qty));
    cx.progress(format!("added {}", item.sku));
    if item.sku == "poison" {
        return Err(ToolError::new("the shop does not sell poison"));
    }
    Ok(cart.lines.len())
}

pub(crate) async fn show_cart(_: NoArguments, cart: State<Cart>) -> Result<Vec<(String, u32)>, ToolError> {
    Ok(cart.lines.clone())
}

pub(crate) async fn shop_hub() -> ToolHub {
    ToolHub::builder()
        .clock(TestClock::new())
        .tool(tool("add", add).read_only())
        .tool(tool("add_to_cart", add_to_cart))
        .tool(tool("show_cart", show_cart).description("Show what is in the cart.").read_only())
        .build()
        .await
        .expect("the shop's tools are valid")
}

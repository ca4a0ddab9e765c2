//! A coffee shop: look at the goods, fill the cart, order. Each tool waits for the one before it, thread by thread.
//!
//! `cargo run -p toolhub --example coffee_shop`

use std::error::Error;

use toolhub::{
    ids::{Tenant, ThreadId},
    prelude::*,
};

/// What the shop sells, and for how many cents.
const GOODS: [(&str, u32); 3] = [("espresso", 250), ("latte", 390), ("tea", 280)];

fn price(name: &str) -> Result<u32, ToolError> {
    let found = GOODS.iter().find(|(goods, _)| *goods == name);
    found.map(|(_, cents)| *cents).ok_or_else(|| ToolError::refused(format!("we do not sell `{name}`")))
}

async fn show_goods(_: NoArguments) -> Result<Vec<&'static str>, ToolError> {
    Ok(GOODS.iter().map(|(name, _)| *name).collect())
}

/// Look at one of the goods.
#[derive(Deserialize, JsonSchema)]
struct Look {
    /// Such as latte.
    name: String,
}

async fn get_goods(look: Look) -> Result<Value, ToolError> {
    Ok(json!({"name": look.name, "cents": price(&look.name)?}))
}

/// Put something in the cart.
#[derive(Deserialize, JsonSchema)]
struct Add {
    /// Such as latte.
    name: String,
    #[schemars(range(min = 1, max = 20))]
    quantity: u32,
}

#[derive(Default, Serialize, Deserialize)]
struct Cart {
    lines: Vec<(String, u32)>,
}
impl ToolState for Cart {
    const NAME: &'static str = "cart";
}

impl Cart {
    fn cents(&self) -> Result<u32, ToolError> {
        self.lines.iter().map(|(name, quantity)| Ok(price(name)? * quantity)).sum()
    }
}

async fn add_to_cart(add: Add, mut cart: State<Cart>) -> Result<Value, ToolError> {
    price(&add.name)?;
    cart.lines.push((add.name, add.quantity));
    Ok(json!({"lines": cart.lines.len(), "cents": cart.cents()?}))
}

async fn order(_: NoArguments, mut cart: State<Cart>) -> Result<String, ToolError> {
    if cart.lines.is_empty() {
        return Err(ToolError::refused("the cart is empty"));
    }
    let cents = cart.cents()?;
    cart.lines.clear();
    Ok(format!("ordered for {}.{:02} €", cents / 100, cents % 100))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let hub = ToolHub::builder()
        .tool(tool("show_goods", show_goods).description("What the shop sells.").read_only())
        .tool(tool("get_goods", get_goods).read_only())
        .tool(tool("add_to_cart", add_to_cart).additive().after_any(["show_goods", "get_goods"]))
        .tool(tool("order", order).description("Order what is in the cart.").after("add_to_cart"))
        .build()
        .await?;

    println!("Ann enters the shop.");
    assert_eq!(available(&hub, "ann").await?, ["get_goods", "show_goods"]);
    let latte = json!({"name": "latte", "quantity": 2});
    let early = call(&hub, "add_to_cart", &latte, "ann").await;
    assert_eq!(
        early.model_text(),
        "`add_to_cart` cannot be used yet. Call one of show_goods, get_goods successfully first."
    );
    let early = call(&hub, "order", &json!({}), "ann").await;
    assert_eq!(early.model_text(), "`order` cannot be used yet. Call add_to_cart successfully first.");
    assert_eq!(early.effect, Effect::None);

    println!("\nShe looks at the goods.");
    assert!(call(&hub, "show_goods", &json!({}), "ann").await.is_success());
    assert_eq!(available(&hub, "ann").await?, ["add_to_cart", "get_goods", "show_goods"]);

    println!("\nShe fills her cart. A refused call does not count as done.");
    let refused = call(&hub, "add_to_cart", &json!({"name": "beer", "quantity": 1}), "ann").await;
    assert_eq!(refused.model_text(), "we do not sell `beer`");
    assert_eq!(available(&hub, "ann").await?, ["add_to_cart", "get_goods", "show_goods"]);
    assert_eq!(call(&hub, "add_to_cart", &latte, "ann").await.output["cents"], 780);
    assert_eq!(available(&hub, "ann").await?, ["add_to_cart", "get_goods", "order", "show_goods"]);

    println!("\nShe orders. What was done stays done, but the cart is empty now, and that is the tool's own affair.");
    assert_eq!(call(&hub, "order", &json!({}), "ann").await.output, json!("ordered for 7.80 €"));
    assert_eq!(call(&hub, "order", &json!({}), "ann").await.model_text(), "the cart is empty");

    println!("\nBen is another thread and starts anew. To look at one thing is enough for him.");
    assert_eq!(available(&hub, "ben").await?, ["get_goods", "show_goods"]);
    assert_eq!(call(&hub, "order", &json!({}), "ben").await.error_kind(), Some(ErrorKind::DependencyNotMet));
    assert_eq!(call(&hub, "get_goods", &json!({"name": "tea"}), "ben").await.output["cents"], 280);
    assert_eq!(available(&hub, "ben").await?, ["add_to_cart", "get_goods", "show_goods"]);
    Ok(())
}

async fn call(hub: &ToolHub, tool: &str, arguments: &Value, thread: &str) -> Outcome {
    let outcome = hub.call(tool, arguments.clone()).thread(thread).await;
    println!("  {tool} {arguments}: {}", outcome.model_text());
    outcome
}

/// The tools a thread may use now.
async fn available(hub: &ToolHub, thread: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let names = hub.available_tools(&Tenant::default(), &ThreadId::new(thread)?).await;
    let names: Vec<String> = names.map_err(|error| error.operator)?.iter().map(ToString::to_string).collect();
    println!("  available to {thread}: {}", names.join(", "));
    Ok(names)
}

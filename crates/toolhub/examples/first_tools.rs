//! The tools of the guide's first chapter: one stateless, one stateful, and how they fail.
//!
//! `cargo run -p toolhub --example first_tools`

use toolhub::prelude::*;

/// Convert a temperature.
#[derive(Deserialize, JsonSchema)]
struct Convert {
    /// In degrees Celsius.
    celsius: f64,
}

async fn to_fahrenheit(convert: Convert) -> Result<f64, ToolError> {
    if convert.celsius < -273.15 {
        return Err(ToolError::refused("nothing is colder than -273.15 °C"));
    }
    Ok(convert.celsius * 1.8 + 32.0)
}

/// Put an item on the shopping list.
#[derive(Deserialize, JsonSchema)]
struct Add {
    item: String,
}

#[derive(Default, Serialize, Deserialize)]
struct List {
    items: Vec<String>,
}
impl ToolState for List {
    const NAME: &'static str = "shopping";
}

async fn add_item(add: Add, mut list: State<List>) -> Result<usize, ToolError> {
    list.items.push(add.item);
    Ok(list.items.len())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let hub = ToolHub::builder()
        .tool(tool("to_fahrenheit", to_fahrenheit).read_only())
        .tool(tool("add_item", add_item))
        .build()
        .await?;

    let warm = hub.call("to_fahrenheit", json!({"celsius": 20})).await;
    println!("20 °C is {} °F", warm.output);

    let cold = hub.call("to_fahrenheit", json!({"celsius": -300})).await;
    println!("-300 °C: {}", cold.model_text());

    let typo = hub.call("to_fahrenheit", json!({"celcius": 20})).await;
    println!("a typo: {}", typo.model_text());

    for item in ["bread", "tea"] {
        let added = hub.call("add_item", json!({"item": item})).thread("monday").await;
        println!("{} on monday's list", added.output);
    }
    let other = hub.call("add_item", json!({"item": "bread"})).thread("tuesday").await;
    println!("{} on tuesday's list", other.output);
    Ok(())
}

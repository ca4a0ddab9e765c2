//! Lists that agents hold for a step, and what their holders hear.

use std::time::Duration;

use toolhub::{
    View,
    events::News,
    ids::{Tenant, ThreadId},
    prelude::*,
    status::ToolStatus,
    testing::scripted,
};

#[tokio::test]
async fn thousands_of_holders_hear_of_a_change_soon() {
    const HOLDERS: usize = 4_000;
    let tenant = Tenant::default();
    let hub = ToolHub::builder().tools(["a", "b"].map(|name| scripted(name, []).0)).build().await.unwrap();
    hub.set_tool_status("a", ToolStatus::Maintenance, None, None, View::Shared).await.unwrap();
    let began = tokio::time::Instant::now();
    let mut offers = Vec::new();
    for holder in 0..HOLDERS {
        offers.push(hub.offer(&tenant, &ThreadId::new(format!("t{holder}")).unwrap()).await.unwrap());
    }
    let mut events = hub.subscribe();
    hub.set_tool_status("a", ToolStatus::Available, None, None, View::Shared).await.unwrap();
    let mut told = 0;
    while told < HOLDERS {
        told += usize::from(matches!(events.next().await.news, News::RebindRequired { .. }));
    }
    // Many times what it takes, and half of what it takes when each holder is looked for among all.
    assert!(began.elapsed() < Duration::from_millis(1_200), "{:?}", began.elapsed());
}

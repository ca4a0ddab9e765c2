//! Limits failed logins of each address.
//!
//! In: who tries to log in, and whether it failed. Out: whether one more attempt may be made. Keys cannot be guessed; the limit keeps
//! attempts from filling the audit log and the processors.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::connections::Holder;

/// How many attempts of one address may fail within the window.
const MAX_FAILURES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// Failures of more addresses are counted together.
const MAX_ADDRESSES: usize = 10_000;

/// Failed logins, by address; `None` for requests without one, and for addresses beyond the limit.
#[derive(Debug, Default)]
pub(crate) struct LoginAttempts(Mutex<HashMap<Option<Holder>, Window>>);

#[derive(Debug)]
struct Window {
    began: Instant,
    failures: u32,
}

impl LoginAttempts {
    /// Counts an attempt as failed before its result is known, so that attempts at the same time cannot exceed the limit.
    ///
    /// # Errors
    /// When the address must wait before its next attempt, and how long.
    pub(crate) fn begin(&self, address: Option<&Holder>) -> Result<(), Duration> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match Self::wait(&windows, address) {
            Some(wait) => Err(wait),
            None => {
                Self::count(&mut windows, address);
                Ok(())
            }
        }
    }

    /// Takes an attempt back that did not fail.
    pub(crate) fn forgive(&self, address: Option<&Holder>) {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = if windows.contains_key(&address.cloned()) { address.cloned() } else { None };
        if let Some(window) = windows.get_mut(&key) {
            window.failures = window.failures.saturating_sub(1);
        }
    }

    fn wait(windows: &HashMap<Option<Holder>, Window>, address: Option<&Holder>) -> Option<Duration> {
        let window =
            windows.get(&address.cloned()).or_else(|| windows.get(&None).filter(|_| windows.len() > MAX_ADDRESSES));
        let window = window.filter(|window| window.failures >= MAX_FAILURES)?;
        WINDOW.checked_sub(window.began.elapsed()).filter(|left| !left.is_zero())
    }

    fn count(windows: &mut HashMap<Option<Holder>, Window>, address: Option<&Holder>) {
        let now = Instant::now();
        if windows.len() >= MAX_ADDRESSES {
            windows.retain(|_, window| now - window.began < WINDOW);
        }
        let is_known = windows.contains_key(&address.cloned());
        let address = address.filter(|_| is_known || windows.len() < MAX_ADDRESSES);
        let window = windows.entry(address.cloned()).or_insert(Window { began: now, failures: 0 });
        if now - window.began >= WINDOW {
            *window = Window { began: now, failures: 0 };
        }
        window.failures += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Holder {
        Holder::of_peer([192, 0, 2, last].into())
    }

    fn fail(attempts: &LoginAttempts, times: u32, address: &Holder) {
        for _ in 0..times {
            assert_eq!(attempts.begin(Some(address)), Ok(()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_failed_too_often_waits_out_the_window_and_others_do_not() {
        let attempts = LoginAttempts::default();
        for _ in 0..MAX_FAILURES {
            fail(&attempts, 1, &address(1));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(attempts.begin(Some(&address(1))), Err(Duration::from_secs(50)));
        assert_eq!((attempts.begin(Some(&address(2))), attempts.begin(None)), (Ok(()), Ok(())));
        tokio::time::advance(Duration::from_secs(50)).await;
        fail(&attempts, MAX_FAILURES, &address(1));
        assert!(attempts.begin(Some(&address(1))).is_err(), "a new window has begun");
    }

    #[tokio::test]
    async fn attempts_at_the_same_time_count_before_they_end_and_those_that_succeed_do_not() {
        let attempts = LoginAttempts::default();
        fail(&attempts, MAX_FAILURES, &address(1));
        assert!(attempts.begin(Some(&address(1))).is_err());
        attempts.forgive(Some(&address(1)));
        fail(&attempts, 1, &address(1));
        assert!(attempts.begin(Some(&address(1))).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_addresses_is_bounded_and_none_beyond_it_goes_unlimited() {
        let attempts = LoginAttempts::default();
        let many = |number: u32| Holder::of_peer(std::net::Ipv4Addr::from_bits(number).into());
        for number in 0..MAX_ADDRESSES as u32 + MAX_FAILURES {
            fail(&attempts, 1, &many(number));
        }
        assert_eq!(attempts.0.lock().unwrap().len(), MAX_ADDRESSES + 1);
        assert!(attempts.begin(Some(&many(u32::MAX))).is_err() && attempts.begin(Some(&many(0))).is_ok());
    }
}

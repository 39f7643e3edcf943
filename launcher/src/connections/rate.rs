//! A token bucket that is one instant: the time since which nothing was taken. What that time is worth is what may pass.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// As much time as may be saved up. Long enough that waking for it costs little, short enough to feel even.
const SAVED: Duration = Duration::from_millis(125);
const SECOND: u128 = 1_000_000_000;

pub struct Bucket {
    per_second: u128,
    since: Instant,
}

impl Bucket {
    /// Starts empty, so that many short connections get no more than a long one.
    pub fn new(per_second: NonZeroU64, now: Instant) -> Bucket {
        Bucket { per_second: per_second.get().into(), since: now }
    }

    /// The time that `bytes` are worth, rounded up: the rate is never exceeded.
    fn worth(&self, bytes: u128) -> Duration {
        let nanoseconds = (bytes * SECOND).div_ceil(self.per_second);
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// How many bytes may pass now.
    pub fn holds(&mut self, now: Instant) -> usize {
        let saved = SAVED.max(self.worth(1));
        let since = now.saturating_duration_since(self.since);
        if since > saved {
            self.since += since - saved;
        }
        let bytes = since.min(saved).as_nanos() * self.per_second / SECOND;
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    pub fn take(&mut self, bytes: usize) {
        self.since += self.worth(bytes as u128);
    }

    /// When it is worth waking again: at half of what can be saved, and at one byte at least.
    pub fn wakes(&self) -> Instant {
        self.since + (SAVED / 2).max(self.worth(1))
    }
}

#[cfg(test)]
mod tests {
    use super::Bucket;
    use std::num::NonZeroU64;
    use std::time::{Duration, Instant};

    #[test]
    fn never_more_than_the_rate_and_nearly_all_of_it() {
        let start = Instant::now();
        for rate in [1u64, 3, 7, 1000, 999_999, u64::MAX / 2] {
            let mut bucket = Bucket::new(NonZeroU64::new(rate).expect("not zero"), start);
            let (mut now, mut passed) = (start, 0u128);
            while now < start + Duration::from_secs(20) {
                now = bucket.wakes().max(now + Duration::from_millis(1));
                let holds = bucket.holds(now);
                bucket.take(holds);
                passed += holds as u128;
            }
            let allowed = (now - start).as_nanos() * u128::from(rate) / 1_000_000_000;
            assert!(passed <= allowed, "{rate}: {passed} of {allowed}");
            assert!(passed + allowed / 50 + 1 >= allowed, "{rate}: {passed} of {allowed}");
        }
    }

    #[test]
    fn silence_saves_up_only_so_much() {
        let start = Instant::now();
        let mut bucket = Bucket::new(NonZeroU64::new(8000).expect("not zero"), start);
        assert_eq!(bucket.holds(start + Duration::from_secs(3600)), 1000);
        bucket.take(1000);
        assert_eq!(bucket.holds(start + Duration::from_secs(3600)), 0);
    }
}

//! Attempts that repeat. The first of its kind is reported at once; those like it in the next while are counted, and told
//! as one with `times`: "so many more of this". A program that opens one file a hundred thousand times then costs its
//! reader a line a second, and no attempt is lost from the count.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::report::{Attempt, Report, Reporter};

const WHILE: Duration = Duration::from_millis(500);
/// Different attempts remembered; when there are more, all are told and forgotten.
const MOST: usize = 1024;
/// And the bytes of their names, which the program makes as long as it likes.
const MOST_BYTES: usize = 1024 * 1024;

#[derive(Default)]
pub struct Repeats {
    seen: HashMap<Attempt, u64>,
    bytes: usize,
    /// When what was counted is told; none while nothing was.
    due: Option<Instant>,
}

impl Repeats {
    pub fn say(&mut self, attempt: Attempt, reporter: &Reporter) {
        if let Some(more) = self.seen.get_mut(&attempt) {
            *more += 1;
            return;
        }
        reporter.say(&Report::Attempt { attempt: &attempt, times: None });
        if self.seen.len() >= MOST || self.bytes >= MOST_BYTES {
            self.tell(reporter);
        }
        self.bytes += attempt.length();
        self.due.get_or_insert_with(|| Instant::now() + WHILE);
        self.seen.insert(attempt, 0);
    }

    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Tells what was counted, and starts anew.
    pub fn tell(&mut self, reporter: &Reporter) {
        for (attempt, more) in self.seen.drain().filter(|(_, more)| *more > 0) {
            reporter.say(&Report::Attempt { attempt: &attempt, times: Some(more) });
        }
        self.bytes = 0;
        self.due = None;
    }
}

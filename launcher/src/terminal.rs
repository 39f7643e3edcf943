//! The caller's own terminal while the sandbox has one of its own: every byte passes, so that the inner one decides
//! what Ctrl-C means. Restored when dropped.

use rustix::termios::{tcgetattr, tcsetattr, OptionalActions, Termios};

pub struct RawTerminal {
    before: Option<Termios>,
}

impl RawTerminal {
    pub fn enter() -> RawTerminal {
        let stdin = rustix::stdio::stdin();
        let Ok(before) = tcgetattr(stdin) else { return RawTerminal { before: None } };
        let mut raw = before.clone();
        raw.make_raw();
        let entered = tcsetattr(stdin, OptionalActions::Drain, &raw).is_ok();
        RawTerminal { before: entered.then_some(before) }
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, before);
        }
    }
}

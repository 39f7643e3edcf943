//! What the caller says while the sandbox runs: one JSON object a line.

use std::os::fd::BorrowedFd;

use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use serde::Deserialize;

#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    Signal {
        signal: i32,
    },
    Kill,
    /// The caller has taken what it keeps.
    Release,
}

#[derive(Default)]
pub struct Control {
    buffer: Vec<u8>,
}

/// No command is longer; a caller that sends more is not ours.
const LONGEST: usize = 4096;

impl Control {
    /// The complete commands that have come. An error: the caller is gone or does not make sense.
    pub fn read(&mut self, from: BorrowedFd<'_>) -> Result<Vec<Command>, Errno> {
        let mut bytes = [0; 1024];
        let n = match rustix::io::read(from, &mut bytes) {
            Ok(0) => return Err(Errno::PIPE),
            Err(Errno::INTR | Errno::AGAIN) => return Ok(Vec::new()),
            other => other?,
        };
        self.buffer.extend_from_slice(&bytes[..n]);
        let mut commands = Vec::new();
        while let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            commands.push(serde_json::from_slice(&line).map_err(|_| Errno::BADMSG)?);
        }
        if self.buffer.len() > LONGEST {
            return Err(Errno::MSGSIZE);
        }
        Ok(commands)
    }

    /// Until the caller releases the sandbox, or is gone.
    pub fn wait_for_release(&mut self, from: BorrowedFd<'_>) {
        loop {
            let mut fds = [PollFd::from_borrowed_fd(from, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            match self.read(from) {
                Ok(commands) if commands.contains(&Command::Release) => return,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}

/// Is standard input no terminal, or one whose foreground job we are?
pub fn may_read_terminal() -> bool {
    let stdin = rustix::stdio::stdin();
    !rustix::termios::isatty(stdin)
        || rustix::termios::tcgetpgrp(stdin).is_ok_and(|group| group == rustix::process::getpgrp())
}

#[cfg(test)]
mod tests {
    use super::{Command, Control};
    use std::os::fd::AsFd;

    #[test]
    fn commands_come_in_pieces_and_nonsense_ends_it() {
        let (ours, theirs) = rustix::pipe::pipe().expect("a pipe");
        let mut control = Control::default();
        let say = |text: &str| rustix::io::write(&theirs, text.as_bytes()).map(drop).expect("written");
        say("{\"command\":\"signal\",\"sig");
        assert_eq!(control.read(ours.as_fd()), Ok(vec![]));
        say("nal\":15}\n{\"command\":\"release\"}\n");
        let heard = control.read(ours.as_fd()).expect("commands");
        assert_eq!(heard, vec![Command::Signal { signal: 15 }, Command::Release]);
        say("{\"command\":\"widen\"}\n");
        assert!(control.read(ours.as_fd()).is_err());
    }

    #[test]
    fn the_end_of_the_caller_is_an_error() {
        let (ours, theirs) = rustix::pipe::pipe().expect("a pipe");
        drop(theirs);
        assert!(Control::default().read(ours.as_fd()).is_err());
    }
}

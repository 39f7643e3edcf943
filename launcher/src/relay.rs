//! Standard input and output, carried between the caller's descriptors and the sandbox's own pipes, so that no
//! descriptor of the host (a terminal, a directory, a file open for writing) is ever held inside. Nothing here blocks:
//! a consumer that doesn't read must not stop the wall clock.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::fs::{fcntl_getfl, fcntl_setfl, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::pipe::{splice, SpliceFlags};

const CHUNK: usize = 256 * 1024;

pub struct Relay {
    from: Option<OwnedFd>,
    to: OwnedFd,
    pending: Vec<u8>,
    /// splice(2) carries pipe to pipe and pipe to file without copying; not every pair of ends can.
    splices: bool,
    /// A blocking socket takes a piece without waiting only if it is asked to.
    socket: bool,
    waits_for_reader: bool,
    pub moved: u64,
    /// What kept the reader's side from taking all, other than the reader's own wish: a full disk.
    pub lost: Option<Errno>,
}

#[derive(PartialEq, Eq, Debug)]
pub enum Progress {
    Going,
    /// The source is at its end and everything is written, or the reader is gone.
    Done,
    /// There is more than the cap allows.
    OverCap,
}

/// A descriptor like `fd` with a file status of its own, so that O_NONBLOCK stays ours. Falls back to a duplicate.
fn own_description(fd: BorrowedFd<'_>, access: OFlags) -> Result<OwnedFd, Errno> {
    use std::os::fd::AsRawFd;
    let duplicate = rustix::io::fcntl_dupfd_cloexec(fd, 3)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
    // Only what can block without end: reopening a regular file would lose its offset and its O_APPEND.
    if !matches!(kind, FileType::Fifo | FileType::CharacterDevice) {
        return Ok(duplicate);
    }
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(&*path, flags, Mode::empty()).unwrap_or(duplicate))
}

impl Relay {
    /// From the sandbox's `pipe` to the caller's `to`.
    pub fn outward(pipe: OwnedFd, to: BorrowedFd<'_>) -> Result<Relay, Errno> {
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        Ok(Relay::between(pipe, own_description(to, OFlags::WRONLY)?))
    }

    /// From the caller's `from` to the sandbox's `pipe`.
    pub fn inward(from: BorrowedFd<'_>, pipe: OwnedFd) -> Result<Relay, Errno> {
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        Ok(Relay::between(rustix::io::fcntl_dupfd_cloexec(from, 3)?, pipe))
    }

    fn between(from: OwnedFd, to: OwnedFd) -> Relay {
        let kind = rustix::fs::fstat(&to).map(|found| FileType::from_raw_mode(found.st_mode));
        let socket = matches!(kind, Ok(FileType::Socket));
        // SPLICE_F_NONBLOCK speaks of the pipe alone: splicing into a blocking socket that nobody reads would sleep, and
        // with it everything that this process watches over.
        let splices = matches!(kind, Ok(FileType::Fifo | FileType::RegularFile));
        Relay {
            from: Some(from),
            to,
            pending: Vec::new(),
            splices,
            socket,
            waits_for_reader: false,
            moved: 0,
            lost: None,
        }
    }

    /// What to wait for next; `None` once done.
    pub fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let from = self.from.as_ref()?;
        if self.waits_for_reader || !self.pending.is_empty() {
            Some((self.to.as_fd(), PollFlags::OUT))
        } else {
            Some((from.as_fd(), PollFlags::IN))
        }
    }

    /// Moves what can be moved now, at most `left` bytes (`None`: no cap).
    pub fn step(&mut self, left: Option<u64>) -> Progress {
        let waited = std::mem::take(&mut self.waits_for_reader);
        let Some(from) = &self.from else { return Progress::Done };
        let room = left.map_or(CHUNK, |left| usize::try_from(left).unwrap_or(CHUNK).min(CHUNK));
        if self.pending.is_empty() && room == 0 {
            // At the cap: one more byte is one too many, the end is fine.
            let mut byte = [0];
            return match rustix::io::read(from, &mut byte) {
                Ok(0) => self.done(),
                Ok(_) => Progress::OverCap,
                Err(Errno::AGAIN | Errno::INTR) => Progress::Going,
                Err(_) => self.done(),
            };
        }
        if self.pending.is_empty() && self.splices {
            match splice(from, None, &self.to, None, room, SpliceFlags::NONBLOCK | SpliceFlags::MOVE) {
                Ok(0) => return self.done(),
                Ok(n) => {
                    self.moved += n as u64;
                    return Progress::Going;
                }
                Err(Errno::AGAIN | Errno::INTR) => {
                    // Either end can be what is not ready: look at the other one next time.
                    self.waits_for_reader = !waited;
                    return Progress::Going;
                }
                Err(Errno::INVAL | Errno::NOSYS) => self.splices = false,
                Err(errno) => return self.fail(errno),
            }
        }
        if self.pending.is_empty() {
            let mut buffer = vec![0; room.min(64 * 1024)];
            match rustix::io::read(from, &mut buffer) {
                Ok(0) => return self.done(),
                Ok(n) => {
                    buffer.truncate(n);
                    self.moved += n as u64;
                    self.pending = buffer;
                }
                Err(Errno::AGAIN | Errno::INTR) => return Progress::Going,
                // A terminal whose other side is closed says so with an error.
                Err(_) => return self.done(),
            }
        }
        // At most a pipe's atomic size: a blocking descriptor that polls writable takes that much at once.
        let piece = &self.pending[..self.pending.len().min(4096)];
        let written = if self.socket {
            rustix::net::send(&self.to, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
        } else {
            rustix::io::write(&self.to, piece)
        };
        match written {
            Ok(n) => {
                self.pending.drain(..n);
                Progress::Going
            }
            Err(Errno::AGAIN | Errno::INTR) => Progress::Going,
            Err(errno) => self.fail(errno),
        }
    }

    /// The other side takes no more. One that closed wanted no more; one that is full wanted it.
    fn fail(&mut self, errno: Errno) -> Progress {
        if matches!(errno, Errno::NOSPC | Errno::FBIG | Errno::DQUOT) {
            self.lost = Some(errno);
        }
        self.done()
    }

    /// Closes the source, so that the writer inside is told as by any closed pipe.
    fn done(&mut self) -> Progress {
        self.from = None;
        self.pending.clear();
        Progress::Done
    }

    pub fn is_done(&self) -> bool {
        self.from.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::{Progress, Relay};
    use rustix::pipe::pipe;
    use std::os::fd::AsFd;

    #[test]
    fn exactly_the_cap_passes_and_one_byte_more_does_not() {
        for (written, last) in [(8, Progress::Done), (9, Progress::OverCap)] {
            let (from, guest) = pipe().expect("a pipe");
            let (reader, to) = pipe().expect("a pipe");
            let mut relay = Relay::outward(from, to.as_fd()).expect("a relay");
            rustix::io::write(&guest, &[b'x'; 16][..written]).expect("written");
            drop(guest);
            let mut progress = Progress::Going;
            for _ in 0..10 {
                if progress == Progress::Going {
                    progress = relay.step(Some(8 - relay.moved));
                }
            }
            assert_eq!(progress, last);
            let mut seen = [0; 16];
            assert_eq!(rustix::io::read(&reader, &mut seen), Ok(8));
        }
    }

    #[test]
    fn a_socket_that_nobody_reads_does_not_hold_up_the_rest() {
        use rustix::net::{socketpair, AddressFamily, SocketFlags, SocketType};
        let (from, guest) = pipe().expect("a pipe");
        let (to, reader) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None).expect("a pair");
        let mut relay = Relay::outward(from, to.as_fd()).expect("a relay");
        // Far more than the socket holds; each step must come back.
        for _ in 0..2000 {
            let flags = rustix::fs::fcntl_getfl(&guest).expect("flags");
            rustix::fs::fcntl_setfl(&guest, flags | rustix::fs::OFlags::NONBLOCK).expect("flags");
            let _ = rustix::io::write(&guest, &[b'x'; 4096]);
            assert_eq!(relay.step(None), Progress::Going);
        }
        assert!(relay.interest().is_some_and(|(_, flags)| flags == rustix::event::PollFlags::OUT));
        drop(reader);
    }

    #[test]
    fn a_full_reader_is_told_from_one_that_is_gone() {
        let (from, guest) = pipe().expect("a pipe");
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let mut relay = Relay::outward(from, full.as_fd()).expect("a relay");
        rustix::io::write(&guest, b"x").expect("written");
        assert_eq!(relay.step(None), Progress::Done);
        assert_eq!(relay.lost, Some(rustix::io::Errno::NOSPC));
    }

    #[test]
    fn a_reader_that_is_gone_closes_the_source() {
        let (from, guest) = pipe().expect("a pipe");
        let (reader, to) = pipe().expect("a pipe");
        crate::sys::ignore_sigpipe();
        let mut relay = Relay::outward(from, to.as_fd()).expect("a relay");
        drop(reader);
        rustix::io::write(&guest, b"x").expect("written");
        assert_eq!(relay.step(None), Progress::Done);
        assert_eq!(rustix::io::write(&guest, b"x"), Err(rustix::io::Errno::PIPE));
    }
}

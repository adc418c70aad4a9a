//! Pseudo-terminals (pty(7)).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{InputModes, OptionalActions, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

use crate::domain::session::WindowSize;

/// A pseudo-terminal pair.
#[derive(Debug)]
pub struct Pty {
    /// The end that plays the terminal.
    pub master: OwnedFd,
    /// The end that programs see as their terminal.
    pub slave: OwnedFd,
}

/// Makes a pseudo-terminal of this size. Neither end becomes anybody's controlling terminal.
pub fn open(size: WindowSize) -> io::Result<Pty> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    unlockpt(&master)?;
    // By descriptor, not by the slave's name: the name could lie in another devpts.
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    let mut attributes = tcgetattr(&slave)?;
    // So that erasing in canonical mode removes whole characters.
    attributes.input_modes |= InputModes::IUTF8;
    tcsetattr(&slave, OptionalActions::Now, &attributes)?;
    set_size(master.as_fd(), size)?;
    Ok(Pty { master, slave })
}

/// Sets a terminal's size; its foreground process group gets SIGWINCH when that changes it.
pub fn set_size(terminal: BorrowedFd<'_>, size: WindowSize) -> io::Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(terminal, size)?)
}

/// Gives a terminal's size.
pub fn size(terminal: BorrowedFd<'_>) -> io::Result<WindowSize> {
    let size = tcgetwinsize(terminal)?;
    Ok(WindowSize { rows: size.ws_row, columns: size.ws_col })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn both_ends_carry_bytes_and_size() {
        let pty = open(WindowSize { rows: 7, columns: 91 }).unwrap();
        assert_eq!(size(pty.slave.as_fd()).unwrap(), WindowSize { rows: 7, columns: 91 });
        set_size(pty.master.as_fd(), WindowSize { rows: 8, columns: 92 }).unwrap();
        assert_eq!(size(pty.slave.as_fd()).unwrap(), WindowSize { rows: 8, columns: 92 });
        assert!(rustix::termios::isatty(&pty.slave));
        let (mut master, mut slave) = (std::fs::File::from(pty.master), std::fs::File::from(pty.slave));
        master.write_all(b"typed\n").unwrap();
        let mut line = [0u8; 6];
        slave.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"typed\n");
    }
}

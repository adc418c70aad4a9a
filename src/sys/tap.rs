//! TAP devices (tuntap.rst of the kernel's documentation).

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use nix::libc;

/// An Ethernet address.
pub type HardwareAddress = [u8; 6];

/// Most addresses that the kernel compares as a whole; with more it would begin to hash.
const RECEIVERS: usize = 8;

/// The kernel's `struct tun_filter` with its addresses.
#[repr(C)]
struct Filter {
    flags: u16,
    count: u16,
    addresses: [HardwareAddress; RECEIVERS],
}

mod request {
    use nix::libc;

    use super::Filter;

    const INT: usize = size_of::<libc::c_int>();

    nix::ioctl_write_ptr_bad!(set_interface, nix::request_code_write!(b'T', 202, INT), libc::ifreq);
    nix::ioctl_write_int_bad!(set_persistent, nix::request_code_write!(b'T', 203, INT));
    nix::ioctl_write_ptr_bad!(set_filter, nix::request_code_write!(b'T', 209, INT), Filter);
}

/// Makes a TAP device, down, for another process to attach to by its name.
///
/// It hands over frames for the given receivers and drops all others, which no route and no rule could
/// do for multicast: the kernel takes that to be on the link whenever a socket names the device.
pub fn make(name: &str, receivers: &[HardwareAddress]) -> io::Result<()> {
    let mut addresses = [[0; 6]; RECEIVERS];
    let count = receivers.len();
    addresses.get_mut(..count).ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(receivers);
    let filter = Filter { flags: 0, count: count as u16, addresses };
    let mut interface = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: (libc::IFF_TAP | libc::IFF_NO_PI) as i16 },
    };
    if name.len() >= libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (slot, byte) in interface.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    let device = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open("/dev/net/tun")?;
    // SAFETY: the descriptor is open, and the request reads one `ifreq`, which lives through the call and whose
    // name ends with a zero byte as it is shorter than its array.
    unsafe { request::set_interface(device.as_raw_fd(), &interface) }?;
    // SAFETY: the descriptor is open, and the request reads two numbers and as many addresses as the second
    // says, which is no more than the array holds; the layout is the kernel's.
    unsafe { request::set_filter(device.as_raw_fd(), &filter) }?;
    // SAFETY: the descriptor is open, and the request takes a number.
    unsafe { request::set_persistent(device.as_raw_fd(), 1) }?;
    Ok(())
}

//! Values that configuration writes as text: times, sizes, prefixes, names.
//!
//! Each reader gives the value, or what is wrong with the text and what to write instead.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;

/// A text that is not a value: what is wrong, and what to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

impl Wrong {
    /// Makes one.
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }
}

/// Reads a time, at most `longest`.
pub fn duration(text: &str, longest: Duration) -> Result<Duration, Wrong> {
    let help = "write a number and a unit, such as \"30s\", \"5m\" or \"1h\"; \"0s\" is none";
    let signed: jiff::SignedDuration = text.parse().map_err(|_| Wrong::new(format!("'{text}' is not a time"), help))?;
    let duration = Duration::try_from(signed).map_err(|_| Wrong::new(format!("'{text}' is a negative time"), help))?;
    if duration > longest {
        let most = format!("write at most \"{}h\"", longest.as_secs() / 3600);
        return Err(Wrong::new(format!("'{text}' is too long a time"), most));
    }
    Ok(duration)
}

/// Reads a size in bytes between two bounds.
pub fn size(text: &str, least: u64, most: u64) -> Result<u64, Wrong> {
    let help = "write a whole number and a unit, such as \"512MiB\" or \"8GiB\"";
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let wrong = || Wrong::new(format!("'{text}' is not a size"), help);
    let (number, shift) =
        units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift))).ok_or_else(|| {
            match text.trim_end_matches(|c: char| c.is_ascii_alphabetic()) {
                number if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => Wrong::new(
                    format!("'{text}' is not a size with a unit that is understood"),
                    "units are KiB, MiB, GiB and TiB",
                ),
                _ => wrong(),
            }
        })?;
    let number: u64 = number.trim_end().parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(1 << shift).filter(|bytes| (least..=most).contains(bytes));
    bytes.ok_or_else(|| {
        let text_of = crate::policy::explain::size_text;
        Wrong::new(
            format!("'{text}' is not a sensible size here"),
            format!("between {} and {}", text_of(least), text_of(most)),
        )
    })
}

/// Reads a prefix, host bits zero.
pub fn prefix(text: &str) -> Result<IpNet, Wrong> {
    if let Ok(address) = text.parse::<IpAddr>() {
        let whole = IpNet::from(address);
        return Err(Wrong::new(
            format!("'{text}' is an address, not a prefix"),
            format!("write \"{whole}\" for this one address"),
        ));
    }
    let net: IpNet = text.parse().map_err(|_| {
        let help = match text.chars().any(|c| c.is_ascii_alphabetic() && !c.is_ascii_hexdigit()) {
            true => "routes know addresses only: write the addresses of that name, such as \"198.51.100.7/32\"",
            false => "write ADDRESS/LENGTH, such as \"10.1.0.0/16\" or \"2001:db8::/32\"",
        };
        Wrong::new(format!("'{text}' is not a prefix"), help)
    })?;
    if net.trunc() != net {
        let message = format!("'{text}' has bits set beyond its length of {}", net.prefix_len());
        return Err(Wrong::new(
            message,
            format!("write \"{}\", or \"{}\" for the one address", net.trunc(), IpNet::from(net.addr())),
        ));
    }
    Ok(net)
}

/// Reads an address.
pub fn address(text: &str) -> Result<IpAddr, Wrong> {
    text.parse()
        .map_err(|_| Wrong::new(format!("'{text}' is not an address"), "write an address, such as \"192.168.1.1\""))
}

/// Reads an address with a port.
pub fn endpoint(text: &str) -> Result<SocketAddr, Wrong> {
    let help = "write ADDRESS:PORT, such as \"198.51.100.7:443\" or \"[2001:db8::7]:443\"";
    let endpoint: SocketAddr =
        text.parse().map_err(|_| Wrong::new(format!("'{text}' is not an address with a port"), help))?;
    match endpoint.port() {
        0 => Err(Wrong::new("port 0 accepts no connection", help)),
        _ => Ok(endpoint),
    }
}

/// Reads a host name (RFC 1123).
pub fn host_name(text: &str) -> Result<String, Wrong> {
    let label = |label: &str| {
        let plain = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        !label.is_empty() && label.len() <= 63 && plain && !label.starts_with('-') && !label.ends_with('-')
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    if name.len() <= 253 && name.split('.').all(label) {
        return Ok(text.to_owned());
    }
    Err(Wrong::new(format!("'{text}' is not a host name"), "write a name such as \"example.org\", in its ASCII form"))
}

/// Reads the name of an environment variable.
pub fn variable(text: &str) -> Result<String, Wrong> {
    if text.starts_with("LAZARET_") {
        return Err(Wrong::new(
            format!("'{text}' is reserved: Lazaret sets variables of that form itself"),
            "choose another name",
        ));
    }
    let starts_well = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if starts_well && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Ok(text.to_owned());
    }
    let help = match text.split_once('=') {
        Some((name, _)) => format!("to give a value, write {name} = \"…\" below [env.set]"),
        None if text.contains('*') => "patterns are not understood: write each name".to_owned(),
        None => "a name has letters, digits and underscores, and begins with no digit".to_owned(),
    };
    Err(Wrong::new(format!("'{text}' is not the name of a variable"), help))
}

/// Checks text that ends up in a C string.
pub fn without_nul(text: &str) -> Result<(), Wrong> {
    match text.contains('\0') {
        true => Err(Wrong::new("a NUL character cannot be passed to a program", "take it out")),
        false => Ok(()),
    }
}

/// Reads a whole number between two bounds.
pub fn number(value: i64, least: u64, most: u64) -> Result<u64, Wrong> {
    let number = u64::try_from(value).ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| {
        Wrong::new(format!("{value} is not a sensible number here"), format!("between {least} and {most}"))
    })
}

/// Expands `~` and `~/` and refuses a path that is not absolute.
pub fn host_path(text: &str, home: &Path) -> Result<PathBuf, Wrong> {
    without_nul(text)?;
    let path = match text.strip_prefix('~') {
        Some("") => home.to_owned(),
        Some(rest) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        Some(_) => {
            return Err(Wrong::new(
                format!("'{text}' names another user's home"),
                "write that directory's absolute path",
            ));
        }
        None => PathBuf::from(text),
    };
    if path.is_absolute() {
        return Ok(path);
    }
    let help = match text.starts_with('$') {
        true => "variables are not expanded: write ~/ for your home directory, or an absolute path",
        false => "write an absolute path, or one that begins with ~/",
    };
    Err(Wrong::new(format!("'{text}' is not an absolute path"), help))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn times() {
        assert_eq!(duration("30s", DAY), Ok(Duration::from_secs(30)));
        assert_eq!(duration("5m", DAY), Ok(Duration::from_secs(300)));
        assert_eq!(duration("1h 30m", DAY), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("0s", DAY), Ok(Duration::ZERO));
        for text in ["", "5", "m", "-5s", "25h", "1e9h", "99999999999999999h", "5 parsecs"] {
            assert!(duration(text, DAY).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("512MiB", 1, u64::MAX), Ok(512 << 20));
        assert_eq!(size("8 GiB", 1, u64::MAX), Ok(8 << 30));
        for text in ["", "5", "5MB", "5G", "-5MiB", "0MiB", "1.5GiB", "99999999999TiB", "MiB"] {
            assert!(size(text, 1, u64::MAX).is_err(), "{text}");
        }
        assert!(size("5MB", 1, 9).unwrap_err().help.contains("MiB"));
    }

    #[test]
    fn prefixes() {
        assert_eq!(prefix("10.1.0.0/16").unwrap().to_string(), "10.1.0.0/16");
        assert!(prefix("10.1.2.3/16").unwrap_err().help.starts_with("write \"10.1.0.0/16\""));
        assert!(prefix("10.1.2.3").unwrap_err().help.contains("\"10.1.2.3/32\""));
        assert!(prefix("example.org").unwrap_err().help.contains("addresses"));
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/8 ", "/8"] {
            assert!(prefix(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_and_endpoints() {
        assert!(variable("PATH").is_ok() && variable("_x1").is_ok());
        for text in ["", "1X", "A-B", "A=B", "LC_*", "LAZARET_X", "Ä"] {
            assert!(variable(text).is_err(), "{text}");
        }
        assert!(host_name("example.org.").is_ok() && host_name("localhost").is_ok());
        for text in ["", ".", "a..b", "-a.b", "exämple.org", "a b"] {
            assert!(host_name(text).is_err(), "{text}");
        }
        assert!(endpoint("198.51.100.7:443").is_ok() && endpoint("[2001:db8::7]:443").is_ok());
        for text in ["198.51.100.7", "198.51.100.7:0", "example.org:443", ":443"] {
            assert!(endpoint(text).is_err(), "{text}");
        }
        assert!(number(0, 1, 9).is_err() && number(-1, 1, 9).is_err() && number(9, 1, 9).is_ok());
    }
}

//! Sizes in bytes as text, for every option, variable and command.

/// The largest size, which is the largest offset in a file.
const LARGEST: u128 = i64::MAX as u128;
/// A fraction with this many digits times any unit stays within `u128`.
const MOST_FRACTION_DIGITS: usize = 18;

/// Reads "4096", "64KiB", "1.5 MiB", "1g" (powers of two) and "4MB" (powers of ten), in any case.
///
/// Returns `None` if the text is not a size, or not below 2^63. A fraction of a byte is dropped.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = unit(&text[number.len()..])?;
    let number = number.trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if fraction.len() > MOST_FRACTION_DIGITS {
        return None;
    }
    let part = digits(fraction)? * unit / 10_u128.pow(fraction.len() as u32);
    let bytes = digits(whole)?.checked_mul(unit)? + part;
    (bytes <= LARGEST).then_some(bytes as u64)
}

fn digits(text: &str) -> Option<u128> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u64>()
        .ok()
        .filter(|_| is_number)
        .map(u128::from)
}

fn unit(name: &str) -> Option<u128> {
    Some(match name.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_size_has_a_unit_in_any_case_and_perhaps_a_fraction() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("7B", 7),
            ("64KiB", 64 << 10),
            ("64k", 64 << 10),
            ("5KB", 5000),
            ("5kb", 5000),
            (" 1.5 GiB ", 3 << 29),
            ("0.1MB", 100_000),
            ("2TiB", 2 << 40),
            ("9223372036854775807", i64::MAX as u64),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn other_text_is_not_a_size() {
        for text in [
            "",
            "MiB",
            "-1",
            "+1",
            "1.",
            ".5",
            "1.5.2",
            "1e6",
            "4parsecs",
            "1 K iB",
            "1_000",
            "9223372036854775808",
            "99999999999999999999",
            "8388608TiB",
            "0.1234567890123456789",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}

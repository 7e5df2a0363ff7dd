//! Byte strings in a buffer: hashed, coded as a dictionary, gathered.
//!
//! A span is start and length; one that is not within the buffer counts as empty.

use crate::crc::{crc32, crc32c};
use crate::dictionary::Dictionary;

/// The bytes of a span.
fn bytes(buffer: &[u8], span: [i64; 2]) -> &[u8] {
    let end = span[0].checked_add(span[1]).and_then(|end| usize::try_from(end).ok());
    let start = usize::try_from(span[0]).ok();
    start.zip(end).and_then(|(start, end)| buffer.get(start..end)).unwrap_or(&[])
}

/// 64 bits of each span: CRC-32C in the upper half, CRC-32 in the lower.
pub fn hash(buffer: &[u8], spans: &[[i64; 2]], out: &mut [u64]) {
    for (span, out) in spans.iter().zip(out) {
        let data = bytes(buffer, *span);
        *out = u64::from(crc32c(data)) << 32 | u64::from(crc32(data));
    }
}

/// The code of each string, in the order in which they are first seen; and for each code the number
/// of its first span, in `firsts`. Returns how many codes there are.
pub fn code(buffer: &[u8], spans: &[[i64; 2]], codes: &mut [i64], firsts: &mut [i64]) -> usize {
    let mut dictionary = Dictionary::new();
    let mut count = 0;
    for (number, (span, out)) in spans.iter().zip(codes).enumerate() {
        let code = dictionary.number(bytes(buffer, *span), count as u32);
        if code as usize == count {
            firsts[count] = number as i64;
            count += 1;
        }
        *out = i64::from(code);
    }
    count
}

/// How many bytes [`gather`] writes.
pub fn gathered(buffer: &[u8], spans: &[[i64; 2]], separator: Option<u8>) -> usize {
    let between = separator.map_or(0, |_| spans.len().saturating_sub(1));
    spans.iter().fold(between, |sum, span| sum.saturating_add(bytes(buffer, *span).len()))
}

/// The bytes of the spans one behind the other, with a separator between them.
pub fn gather(buffer: &[u8], spans: &[[i64; 2]], separator: Option<u8>, mut out: &mut [u8]) {
    for (number, span) in spans.iter().enumerate() {
        if let (1.., Some(byte)) = (number, separator) {
            out[0] = byte;
            out = &mut out[1..];
        }
        let data = bytes(buffer, *span);
        let (here, rest) = out.split_at_mut(data.len());
        here.copy_from_slice(data);
        out = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_beyond_the_buffer_are_empty() {
        let max = i64::MAX;
        for span in
            [[-1, 2], [0, 4], [4, 0], [3, 1], [2, -1], [max, max], [i64::MIN, max], [0, max]]
        {
            assert_eq!(bytes(b"abc", span), b"");
        }
        assert_eq!(bytes(b"abc", [1, 2]), b"bc");
    }
}

//! Functions to hash, number and join byte strings in a buffer.
//!
//! A span is a start and a length. A span that is not within the buffer is empty.

use crate::crc::{crc32, crc32c};
use crate::dictionary::Dictionary;

fn bytes(buffer: &[u8], span: [i64; 2]) -> &[u8] {
    let end = span[0].checked_add(span[1]).and_then(|end| usize::try_from(end).ok());
    let start = usize::try_from(span[0]).ok();
    start.zip(end).and_then(|(start, end)| buffer.get(start..end)).unwrap_or(&[])
}

/// From this length on, the second half of a hash is a sum, which is as fast as memory.
const LONG: usize = 512;

/// Hashes each span to 64 bits: CRC-32C in the upper half, and CRC-32 or a sum in the lower half.
pub fn hash(buffer: &[u8], spans: &[[i64; 2]], out: &mut [u64]) {
    for (span, out) in spans.iter().zip(out) {
        let data = bytes(buffer, *span);
        let second = if data.len() < LONG { crc32(data) } else { sum_of_words(data) };
        *out = u64::from(crc32c(data)) << 32 | u64::from(second);
    }
}

/// Returns 32 bits of the sum of all words of eight bytes; the last word is padded with zeros.
fn sum_of_words(data: &[u8]) -> u32 {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let mut words = data.chunks_exact(8);
    let sum = words.by_ref().map(word).fold(0, u64::wrapping_add);
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    (sum.wrapping_add(u64::from_le_bytes(last)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

/// Numbers the distinct strings in the order of their first occurrence, and writes the number of
/// the first span of each code to `firsts`. Returns the number of codes.
pub fn code(buffer: &[u8], spans: &[[i64; 2]], codes: &mut [isize], firsts: &mut [isize]) -> usize {
    let mut dictionary = Dictionary::new();
    let mut count = 0;
    for (number, (span, out)) in spans.iter().zip(codes).enumerate() {
        let code = dictionary.number(bytes(buffer, *span), count as u32);
        if code as usize == count {
            firsts[count] = number as isize;
            count += 1;
        }
        *out = code as isize;
    }
    count
}

/// Returns the number of bytes that [`gather`] writes.
pub fn gathered_size(buffer: &[u8], spans: &[[i64; 2]], separator: Option<u8>) -> usize {
    let separators = separator.map_or(0, |_| spans.len().saturating_sub(1));
    spans.iter().fold(separators, |sum, span| sum.saturating_add(bytes(buffer, *span).len()))
}

/// Joins the bytes of the spans, with a separator between them.
pub fn gather(buffer: &[u8], spans: &[[i64; 2]], separator: Option<u8>, mut out: &mut [u8]) {
    for (number, span) in spans.iter().enumerate() {
        if let (1.., Some(byte)) = (number, separator) {
            out[0] = byte;
            out = &mut out[1..];
        }
        let data = bytes(buffer, *span);
        let (target, tail) = out.split_at_mut(data.len());
        target.copy_from_slice(data);
        out = tail;
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

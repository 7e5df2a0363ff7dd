//! Framing: `uint64 length, uint32 crc(length), length bytes, uint32 crc(bytes)`, little-endian.

use crate::crc::masked;

pub const HEADER: usize = 12;
pub const FOOTER: usize = 4;

/// The reason why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum End {
    /// The buffer ends, after or inside a record.
    Buffer = 0,
    /// The output is full.
    Full = 1,
    /// The checksum of the length is wrong.
    LengthChecksum = 2,
    /// The checksum of the data is wrong.
    DataChecksum = 3,
    /// The length is above the limit.
    TooLong = 4,
}

/// Finds the records at the start of a buffer.
///
/// Writes start and length of each payload. Returns the number of payloads, the position where the
/// walk ended (the header of the first record that was not read), and the reason. Each byte is read
/// at most once.
pub fn find(
    buffer: &[u8],
    max_length: u64,
    starts: &mut [i64],
    lengths: &mut [i64],
) -> (usize, usize, End) {
    let capacity = starts.len().min(lengths.len());
    let mut position = 0;
    let mut count = 0;
    loop {
        let tail = &buffer[position..];
        if tail.len() < HEADER {
            return (count, position, End::Buffer);
        }
        if count == capacity {
            return (count, position, End::Full);
        }
        let length = u64::from_le_bytes(tail[..8].try_into().unwrap());
        if masked(&tail[..8]) != u32::from_le_bytes(tail[8..HEADER].try_into().unwrap()) {
            return (count, position, End::LengthChecksum);
        }
        if length > max_length {
            return (count, position, End::TooLong);
        }
        let body = &tail[HEADER..];
        if (body.len() as u64) < length || body.len() - (length as usize) < FOOTER {
            return (count, position, End::Buffer);
        }
        let (data, footer) = body.split_at(length as usize);
        if masked(data) != u32::from_le_bytes(footer[..FOOTER].try_into().unwrap()) {
            return (count, position, End::DataChecksum);
        }
        starts[count] = (position + HEADER) as i64;
        lengths[count] = length as i64;
        count += 1;
        position += HEADER + length as usize + FOOTER;
    }
}

//! Framing: `uint64 length, uint32 crc(length), length bytes, uint32 crc(bytes)`, little-endian.

use crate::crc::masked;

pub const HEADER: usize = 12;
pub const FOOTER: usize = 4;

/// Why the walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum End {
    /// The buffer ends, at a record's end or inside a record.
    Buffer = 0,
    /// There is no room for another span.
    Full = 1,
    /// The checksum of the length is wrong.
    LengthChecksum = 2,
    /// The checksum of the data is wrong.
    DataChecksum = 3,
    /// The length is above the limit.
    TooLong = 4,
}

/// Finds records from the start of a buffer on.
///
/// Writes start and length of each payload; returns how many there are, where the walk ended (at the
/// header of the record that was not taken), and why. Each byte is looked at once at most.
pub fn find(
    buffer: &[u8],
    longest: u64,
    verify: bool,
    starts: &mut [i64],
    lengths: &mut [i64],
) -> (usize, usize, End) {
    let room = starts.len().min(lengths.len());
    let mut position = 0;
    let mut count = 0;
    loop {
        let rest = &buffer[position..];
        if rest.len() < HEADER {
            return (count, position, End::Buffer);
        }
        if count == room {
            return (count, position, End::Full);
        }
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap());
        if masked(&rest[..8]) != u32::from_le_bytes(rest[8..HEADER].try_into().unwrap()) {
            return (count, position, End::LengthChecksum);
        }
        if length > longest {
            return (count, position, End::TooLong);
        }
        let body = &rest[HEADER..];
        if (body.len() as u64) < length || body.len() - (length as usize) < FOOTER {
            return (count, position, End::Buffer);
        }
        let (data, footer) = body.split_at(length as usize);
        if verify && masked(data) != u32::from_le_bytes(footer[..FOOTER].try_into().unwrap()) {
            return (count, position, End::DataChecksum);
        }
        starts[count] = (position + HEADER) as i64;
        lengths[count] = length as i64;
        count += 1;
        position += HEADER + length as usize + FOOTER;
    }
}

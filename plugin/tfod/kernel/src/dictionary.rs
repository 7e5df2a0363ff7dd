//! Numbers for byte strings, in the order of their first occurrence.

use std::collections::HashMap;

/// Slots of a cache in front of the map, because most strings are repetitions.
const SLOTS: usize = 256;

pub struct Dictionary<'a> {
    numbers: HashMap<&'a [u8], u32>, // with random hashes, so that input cannot force collisions
    recent: Vec<(&'a [u8], u32)>,
}

/// The slot of a string, from its last eight bytes, because many strings have a common prefix.
#[inline]
fn slot(data: &[u8]) -> usize {
    let tail = match data.len().checked_sub(8) {
        Some(start) => u64::from_le_bytes(data[start..].try_into().unwrap()),
        None => data.iter().fold(data.len() as u64, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    (tail.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize % SLOTS
}

impl<'a> Dictionary<'a> {
    pub fn new() -> Self {
        Dictionary { numbers: HashMap::new(), recent: vec![(&[], u32::MAX); SLOTS] }
    }

    /// Returns the number of a string, which is `next` for a new one.
    #[inline]
    pub fn number(&mut self, data: &'a [u8], next: u32) -> u32 {
        let recent = &mut self.recent[slot(data)];
        if recent.1 == u32::MAX || recent.0 != data {
            *recent = (data, *self.numbers.entry(data).or_insert(next));
        }
        recent.1
    }
}

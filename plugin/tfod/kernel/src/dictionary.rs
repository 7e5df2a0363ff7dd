//! Numbers for byte strings, in the order in which they are first seen.

use std::collections::HashMap;

/// Places to look at before the map: most labels and all keys have come before.
const RECENT: usize = 256;

pub struct Dictionary<'a> {
    known: HashMap<&'a [u8], u32>, // its hashes are keyed: nobody can make many strings collide
    recent: Vec<(&'a [u8], u32)>,
}

/// Where to look first, by the last eight bytes: there strings with a common start differ.
#[inline]
fn place(data: &[u8]) -> usize {
    let tail = match data.len().checked_sub(8) {
        Some(start) => u64::from_le_bytes(data[start..].try_into().unwrap()),
        None => data.iter().fold(data.len() as u64, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    (tail.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize % RECENT
}

impl<'a> Dictionary<'a> {
    pub fn new() -> Self {
        Dictionary { known: HashMap::new(), recent: vec![(&[], u32::MAX); RECENT] }
    }

    /// The number of a string; a new one has `next`.
    #[inline]
    pub fn number(&mut self, data: &'a [u8], next: u32) -> u32 {
        let recent = &mut self.recent[place(data)];
        if recent.1 == u32::MAX || recent.0 != data {
            *recent = (data, *self.known.entry(data).or_insert(next));
        }
        recent.1
    }
}

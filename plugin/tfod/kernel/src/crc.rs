//! CRC-32C, as TFRecord stores it: by the processor's own instruction where it has one.

const POLYNOMIAL: u32 = 0x82F6_3B78;

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let mut value = 0;
    while value < 256 {
        let mut crc = value as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][value] = crc;
        value += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut value = 0;
        while value < 256 {
            let before = tables[table - 1][value];
            tables[table][value] = before >> 8 ^ tables[0][(before & 0xFF) as usize];
            value += 1;
        }
        table += 1;
    }
    tables
}

static TABLES: [[u32; 256]; 8] = tables();

fn by_tables(mut crc: u32, data: &[u8]) -> u32 {
    let mut words = data.chunks_exact(8);
    for word in &mut words {
        let mut bytes = [0u8; 8];
        bytes.copy_from_slice(word);
        let mixed = u64::from_le_bytes(bytes) ^ u64::from(crc);
        crc = (0..8).fold(0, |sum, byte| {
            sum ^ TABLES[7 - byte][(mixed >> (8 * byte) & 0xFF) as usize]
        });
    }
    words.remainder().iter().fold(crc, |crc, byte| {
        crc >> 8 ^ TABLES[0][((crc ^ u32::from(*byte)) & 0xFF) as usize]
    })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
unsafe fn by_instruction(crc: u32, data: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u64, _mm_crc32_u8};
    let mut wide = u64::from(crc);
    let mut words = data.chunks_exact(8);
    for word in &mut words {
        let mut bytes = [0u8; 8];
        bytes.copy_from_slice(word);
        wide = _mm_crc32_u64(wide, u64::from_le_bytes(bytes));
    }
    words.remainder().iter().fold(wide as u32, |crc, byte| _mm_crc32_u8(crc, *byte))
}

/// The CRC-32C of some bytes.
pub fn crc32c(data: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return !unsafe { by_instruction(!0, data) };
    }
    !by_tables(!0, data)
}

/// The checksum as TFRecord stores it: rotated right by 15 bits, plus a constant.
pub fn masked(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xA282_EAD8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_agree_with_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283); // RFC 3720, and every CRC catalogue
        let data: Vec<u8> = (0..1000u32).map(|n| (n * n >> 3) as u8).collect();
        for length in 0..data.len() {
            assert_eq!(crc32c(&data[..length]), !by_tables(!0, &data[..length]));
        }
    }
}

//! Two checksums of 32 bits: CRC-32C, which TFRecord stores, and the CRC-32 of zlib.
//!
//! x86-64 and AArch64 have an instruction for CRC-32C. On x86-64 it is used in three streams,
//! because each instruction waits for the previous one. Other processors use tables for 16 bytes at
//! a time. So does CRC-32, which is only needed for short strings.

const CRC32C: u32 = 0x82F6_3B78;
const CRC32: u32 = 0xEDB8_8320;
static CRC32C_TABLES: Tables = tables(CRC32C);
static CRC32_TABLES: Tables = tables(CRC32);

type Tables = [[u32; 256]; 16];

/// Multiplies by a power of x, modulo the polynomial. The lowest bit is the highest power.
const fn times_x(mut crc: u32, exponent: u32, polynomial: u32) -> u32 {
    let mut bit = 0;
    while bit < exponent {
        crc = if crc & 1 != 0 { crc >> 1 ^ polynomial } else { crc >> 1 };
        bit += 1;
    }
    crc
}

const fn tables(polynomial: u32) -> Tables {
    let mut tables = [[0u32; 256]; 16];
    let mut value = 0;
    while value < 256 {
        tables[0][value] = times_x(value as u32, 8, polynomial);
        value += 1;
    }
    let mut table = 1;
    while table < 16 {
        let mut value = 0;
        while value < 256 {
            let previous = tables[table - 1][value];
            tables[table][value] = previous >> 8 ^ tables[0][(previous & 0xFF) as usize];
            value += 1;
        }
        table += 1;
    }
    tables
}

fn crc_by_tables(tables: &Tables, mut crc: u32, data: &[u8]) -> u32 {
    let mut blocks = data.chunks_exact(16);
    for block in &mut blocks {
        let start = crc.to_le_bytes();
        crc = 0;
        for (index, &byte) in block.iter().enumerate() {
            let byte = if index < 4 { byte ^ start[index] } else { byte };
            crc ^= tables[15 - index][byte as usize];
        }
    }
    blocks
        .remainder()
        .iter()
        .fold(crc, |crc, byte| crc >> 8 ^ tables[0][((crc ^ u32::from(*byte)) & 0xFF) as usize])
}

#[cfg(target_arch = "x86_64")]
mod simd {
    use super::{times_x, CRC32C};
    use std::arch::x86_64::*;

    /// Returns whether the processor has the instructions.
    pub fn is_available() -> bool {
        is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq")
    }

    /// The maximum number of words of eight bytes in each of three streams.
    const STRIPE: usize = 128;
    /// Factors that shift a CRC-32C by a number of words: x to the power of 64 times the number,
    /// minus 33, because a product and the instruction add 33 powers.
    static SHIFTS: [u32; 2 * STRIPE + 1] = shifts();

    const fn shifts() -> [u32; 2 * STRIPE + 1] {
        let mut shifts = [0; 2 * STRIPE + 1];
        let mut words = 1;
        shifts[1] = times_x(1 << 31, 64 - 33, CRC32C);
        while words < 2 * STRIPE {
            shifts[words + 1] = times_x(shifts[words], 64, CRC32C);
            words += 1;
        }
        shifts
    }

    #[inline]
    fn word(words: &[u8], number: usize) -> u64 {
        u64::from_le_bytes(words[8 * number..8 * number + 8].try_into().unwrap())
    }

    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub unsafe fn crc32c(mut crc: u32, mut data: &[u8]) -> u32 {
        while data.len() >= 3 * 64 {
            let count = (data.len() / 24).min(STRIPE);
            let (first, tail) = data.split_at(8 * count);
            let (second, tail) = tail.split_at(8 * count);
            let (third, tail) = tail.split_at(8 * count);
            let mut sums = [u64::from(crc), 0, 0];
            for number in 0..count {
                sums[0] = _mm_crc32_u64(sums[0], word(first, number));
                sums[1] = _mm_crc32_u64(sums[1], word(second, number));
                sums[2] = _mm_crc32_u64(sums[2], word(third, number));
            }
            let first_sums = _mm_set_epi64x(sums[1] as i64, sums[0] as i64);
            let factors = _mm_set_epi64x(i64::from(SHIFTS[count]), i64::from(SHIFTS[2 * count]));
            let shifted = _mm_xor_si128(
                _mm_clmulepi64_si128::<0x00>(first_sums, factors),
                _mm_clmulepi64_si128::<0x11>(first_sums, factors),
            );
            crc = (_mm_crc32_u64(0, _mm_cvtsi128_si64(shifted) as u64) ^ sums[2]) as u32;
            data = tail;
        }
        let mut words = data.chunks_exact(8);
        for bytes in &mut words {
            crc = _mm_crc32_u64(u64::from(crc), word(bytes, 0)) as u32;
        }
        words.remainder().iter().fold(crc, |crc, byte| _mm_crc32_u8(crc, *byte))
    }
}

#[cfg(target_arch = "aarch64")]
mod simd {
    use std::arch::asm;

    /// Returns whether the processor has the instructions.
    pub fn is_available() -> bool {
        std::arch::is_aarch64_feature_detected!("crc")
    }

    /// Uses assembly, because Rust has intrinsics for these instructions only since 1.80.
    pub unsafe fn crc32c(mut crc: u32, data: &[u8]) -> u32 {
        let mut words = data.chunks_exact(8);
        for word in &mut words {
            let word = u64::from_le_bytes(word.try_into().unwrap());
            asm!(".arch_extension crc", "crc32cx {0:w}, {0:w}, {1:x}",
                inout(reg) crc, in(reg) word, options(pure, nomem, nostack));
        }
        for &byte in words.remainder() {
            asm!(".arch_extension crc", "crc32cb {0:w}, {0:w}, {1:w}",
                inout(reg) crc, in(reg) u32::from(byte), options(pure, nomem, nostack));
        }
        crc
    }
}

pub fn crc32c(data: &[u8]) -> u32 {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if simd::is_available() {
        // SAFETY: the processor has the instructions.
        return !unsafe { simd::crc32c(!0, data) };
    }
    !crc_by_tables(&CRC32C_TABLES, !0, data)
}

pub fn crc32(data: &[u8]) -> u32 {
    !crc_by_tables(&CRC32_TABLES, !0, data)
}

/// Returns the checksum that TFRecord stores: CRC-32C, rotated right by 15 bits, plus a constant.
pub fn masked(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xA282_EAD8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_are_correct() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283); // RFC 3720, and CRC catalogues
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn tables_and_instructions_agree_on_every_length() {
        let data: Vec<u8> = (0..4000u32).map(|n| (n * n >> 3) as u8).collect();
        for length in 0..data.len() {
            let part = &data[..length];
            assert_eq!(crc32c(part), !crc_by_tables(&CRC32C_TABLES, !0, part));
        }
    }
}

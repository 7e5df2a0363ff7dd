//! Two checksums of 32 bits: CRC-32C, as TFRecord stores it, and CRC-32, as zlib has it.
//!
//! On x86-64 CRC-32C has an instruction of its own, here in three streams, since each waits for the
//! one before; CRC-32 folds 64 bytes at a time by multiplications without carry (V. Gopal and
//! others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009).
//! AArch64 has instructions for both. Elsewhere, and for short ends, tables take 16 bytes at a time.

const CRC32C: u32 = 0x82F6_3B78;
const CRC32: u32 = 0xEDB8_8320;
static CRC32C_TABLES: Tables = tables(CRC32C);
static CRC32_TABLES: Tables = tables(CRC32);

type Tables = [[u32; 256]; 16];

/// Multiplies by a power of x, modulo the polynomial; the lowest bit is the highest power.
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
            let before = tables[table - 1][value];
            tables[table][value] = before >> 8 ^ tables[0][(before & 0xFF) as usize];
            value += 1;
        }
        table += 1;
    }
    tables
}

fn by_tables(tables: &Tables, mut crc: u32, data: &[u8]) -> u32 {
    let mut blocks = data.chunks_exact(16);
    for block in &mut blocks {
        let start = crc.to_le_bytes();
        crc = 0;
        for (place, &byte) in block.iter().enumerate() {
            let byte = if place < 4 { byte ^ start[place] } else { byte };
            crc ^= tables[15 - place][byte as usize];
        }
    }
    blocks
        .remainder()
        .iter()
        .fold(crc, |crc, byte| crc >> 8 ^ tables[0][((crc ^ u32::from(*byte)) & 0xFF) as usize])
}

#[cfg(target_arch = "x86_64")]
mod simd {
    use super::{times_x, CRC32, CRC32C};
    use std::arch::x86_64::*;

    /// Whether the processor has what is used here.
    pub fn available() -> bool {
        is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq")
    }

    /// Words of eight bytes in each of three streams, at most.
    const STRIPE: usize = 128;
    /// For a number of words what moves a CRC-32C over so many: x to 64 times that, less the 33
    /// powers that a product and the instruction add.
    static MOVES: [u32; 2 * STRIPE + 1] = moves();

    const fn moves() -> [u32; 2 * STRIPE + 1] {
        let mut found = [0; 2 * STRIPE + 1];
        let mut words = 1;
        found[1] = times_x(1 << 31, 64 - 33, CRC32C);
        while words < 2 * STRIPE {
            found[words + 1] = times_x(found[words], 64, CRC32C);
            words += 1;
        }
        found
    }

    #[inline]
    fn word(words: &[u8], number: usize) -> u64 {
        u64::from_le_bytes(words[8 * number..8 * number + 8].try_into().unwrap())
    }

    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub unsafe fn crc32c(mut crc: u32, mut data: &[u8]) -> u32 {
        while data.len() >= 3 * 64 {
            let count = (data.len() / 24).min(STRIPE);
            let (first, rest) = data.split_at(8 * count);
            let (second, rest) = rest.split_at(8 * count);
            let (third, rest) = rest.split_at(8 * count);
            let mut sums = [u64::from(crc), 0, 0];
            for number in 0..count {
                sums[0] = _mm_crc32_u64(sums[0], word(first, number));
                sums[1] = _mm_crc32_u64(sums[1], word(second, number));
                sums[2] = _mm_crc32_u64(sums[2], word(third, number));
            }
            let sums_of_two = _mm_set_epi64x(sums[1] as i64, sums[0] as i64);
            let by = _mm_set_epi64x(i64::from(MOVES[count]), i64::from(MOVES[2 * count]));
            let moved = _mm_xor_si128(
                _mm_clmulepi64_si128::<0x00>(sums_of_two, by),
                _mm_clmulepi64_si128::<0x11>(sums_of_two, by),
            );
            crc = (_mm_crc32_u64(0, _mm_cvtsi128_si64(moved) as u64) ^ sums[2]) as u32;
            data = rest;
        }
        let mut words = data.chunks_exact(8);
        for eight in &mut words {
            crc = _mm_crc32_u64(u64::from(crc), word(eight, 0)) as u32;
        }
        words.remainder().iter().fold(crc, |crc, byte| _mm_crc32_u8(crc, *byte))
    }

    /// What moves 16 bytes of a CRC-32 over some bytes: a factor for each half.
    const fn factors(bytes: u32) -> [i64; 2] {
        let (low, high) = (8 * bytes + 32, 8 * bytes - 32);
        [(times_x(1 << 31, low, CRC32) as i64) << 1, (times_x(1 << 31, high, CRC32) as i64) << 1]
    }

    const BY_64: [i64; 2] = factors(64);
    const BY_16: [i64; 2] = factors(16);

    #[inline]
    #[target_feature(enable = "sse4.2")]
    unsafe fn load(block: &[u8]) -> __m128i {
        debug_assert!(block.len() == 16);
        _mm_loadu_si128(block.as_ptr().cast())
    }

    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    unsafe fn fold(sum: __m128i, factors: __m128i, next: __m128i) -> __m128i {
        let low = _mm_clmulepi64_si128::<0x00>(sum, factors);
        let high = _mm_clmulepi64_si128::<0x11>(sum, factors);
        _mm_xor_si128(_mm_xor_si128(low, high), next)
    }

    /// Folds the whole blocks of 16 bytes, four of them at least, to the last one; returns 16 bytes
    /// to go on with from 0 in their place, and the bytes that are left.
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub unsafe fn folded_crc32(start: u32, data: &[u8]) -> ([u8; 16], &[u8]) {
        let far = _mm_set_epi64x(BY_64[1], BY_64[0]);
        let near = _mm_set_epi64x(BY_16[1], BY_16[0]);
        let (first, rest) = data.split_at(64);
        let mut sums = [_mm_setzero_si128(); 4];
        for (sum, block) in sums.iter_mut().zip(first.chunks_exact(16)) {
            *sum = load(block);
        }
        sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128(start as i32));
        let mut quads = rest.chunks_exact(64);
        for quad in &mut quads {
            for (sum, block) in sums.iter_mut().zip(quad.chunks_exact(16)) {
                *sum = fold(*sum, far, load(block));
            }
        }
        let mut sum = sums[0];
        for next in &sums[1..] {
            sum = fold(sum, near, *next);
        }
        let mut blocks = quads.remainder().chunks_exact(16);
        for block in &mut blocks {
            sum = fold(sum, near, load(block));
        }
        let mut last = [0; 16];
        _mm_storeu_si128(last.as_mut_ptr().cast(), sum);
        (last, blocks.remainder())
    }
}

#[cfg(target_arch = "aarch64")]
mod simd {
    use std::arch::asm;

    /// Whether the processor has what is used here.
    pub fn available() -> bool {
        std::arch::is_aarch64_feature_detected!("crc")
    }

    /// A function of one of the two checksums, by the names of its instructions: Rust has them
    /// only from 1.80 on.
    macro_rules! by_instruction {
        ($name:ident, $eight_bytes:literal, $one_byte:literal) => {
            pub unsafe fn $name(mut crc: u32, data: &[u8]) -> u32 {
                let mut words = data.chunks_exact(8);
                for word in &mut words {
                    let word = u64::from_le_bytes(word.try_into().unwrap());
                    asm!(".arch_extension crc", concat!($eight_bytes, " {0:w}, {0:w}, {1:x}"),
                        inout(reg) crc, in(reg) word, options(pure, nomem, nostack));
                }
                for &byte in words.remainder() {
                    asm!(".arch_extension crc", concat!($one_byte, " {0:w}, {0:w}, {1:w}"),
                        inout(reg) crc, in(reg) u32::from(byte), options(pure, nomem, nostack));
                }
                crc
            }
        };
    }
    by_instruction!(crc32c, "crc32cx", "crc32cb");
    by_instruction!(crc32, "crc32x", "crc32b");
}

/// The CRC-32C of some bytes.
pub fn crc32c(data: &[u8]) -> u32 {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if simd::available() {
        // SAFETY: the processor has the instructions.
        return !unsafe { simd::crc32c(!0, data) };
    }
    !by_tables(&CRC32C_TABLES, !0, data)
}

/// The CRC-32 of some bytes.
pub fn crc32(data: &[u8]) -> u32 {
    #[cfg(target_arch = "aarch64")]
    if simd::available() {
        // SAFETY: the processor has the instructions.
        return !unsafe { simd::crc32(!0, data) };
    }
    #[cfg(target_arch = "x86_64")]
    if data.len() >= 64 && simd::available() {
        // SAFETY: the processor has the instructions, and there are four blocks.
        let (last, rest) = unsafe { simd::folded_crc32(!0, data) };
        return !by_tables(&CRC32_TABLES, by_tables(&CRC32_TABLES, 0, &last), rest);
    }
    !by_tables(&CRC32_TABLES, !0, data)
}

/// The checksum as TFRecord stores it: rotated right by 15 bits, plus a constant.
pub fn masked(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xA282_EAD8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_those_of_the_catalogues() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283); // RFC 3720, and every CRC catalogue
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn every_way_agrees_on_every_length() {
        let data: Vec<u8> = (0..4000u32).map(|n| (n * n >> 3) as u8).collect();
        for length in 0..data.len() {
            let part = &data[..length];
            assert_eq!(crc32c(part), !by_tables(&CRC32C_TABLES, !0, part));
            assert_eq!(crc32(part), !by_tables(&CRC32_TABLES, !0, part));
        }
    }
}

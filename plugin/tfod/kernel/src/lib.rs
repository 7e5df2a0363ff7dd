//! The kernel of tfod: functions with a C interface that find records, parse Examples to columns, and
//! hash, number and join byte strings.
//!
//! It never trusts a length: whatever a record claims, memory stays below 128 times the size of the
//! input (about twice for real records), and time is linear in it. Except for the instructions of
//! the processor in [`crc`], all logic is safe Rust. Only this file uses raw pointers, which the
//! caller (`library.py`) has got from arrays.
//!
//! Each argument of the interface is an array, as its address and its number of elements, or a
//! number. The outputs come last.

pub mod columns;
pub mod crc;
pub mod dictionary;
pub mod parse;
pub mod records;
pub mod spans;
pub mod wire;

use columns::Columns;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

/// The return value instead of a count if the kernel has a bug.
const DEFECT: usize = usize::MAX;

/// Returns the version of the interface, which changes with every signature or layout below.
#[no_mangle]
pub extern "C" fn tfod_abi() -> usize {
    4
}

/// Returns a slice of an array of the caller; empty arrays of NumPy may have any address.
unsafe fn view<'a, T>(data: *const T, length: usize) -> &'a [T] {
    if length == 0 {
        &[]
    } else {
        slice::from_raw_parts(data, length)
    }
}

unsafe fn view_mut<'a, T>(data: *mut T, length: usize) -> &'a mut [T] {
    if length == 0 {
        &mut []
    } else {
        slice::from_raw_parts_mut(data, length)
    }
}

/// Runs `work`; a panic, which must not cross into C, becomes a [`DEFECT`].
fn guarded(work: impl FnOnce() -> usize) -> usize {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(DEFECT)
}

/// See [`records::find`]; returns the count. The outcome is the position and the reason of the end.
#[no_mangle]
pub unsafe extern "C" fn tfod_find_records(
    buffer: *const u8,
    length: usize,
    max_length: *const [u64; 1],
    _: usize,
    starts: *mut i64,
    starts_count: usize,
    lengths: *mut i64,
    lengths_count: usize,
    outcome: *mut [i64; 2],
    _: usize,
) -> usize {
    let (buffer, [max_length]) = (view(buffer, length), *max_length);
    let (starts, lengths) = (view_mut(starts, starts_count), view_mut(lengths, lengths_count));
    guarded(|| {
        let (count, position, end) = records::find(buffer, max_length, starts, lengths);
        *outcome = [position as i64, end as i64];
        count
    })
}

/// See [`parse::parse`]; writes the three [`Columns::sizes`]. Returns a handle for [`tfod_write`],
/// which the caller passes to [`tfod_free`] at last.
#[no_mangle]
pub unsafe extern "C" fn tfod_parse(
    buffer: *const u8,
    length: usize,
    starts: *const i64,
    starts_count: usize,
    lengths: *const i64,
    lengths_count: usize,
    sizes: *mut [u64; 3],
    _: usize,
) -> usize {
    let buffer = view(buffer, length);
    let (starts, lengths) = (view(starts, starts_count), view(lengths, lengths_count));
    guarded(|| {
        let columns = parse::parse(buffer, starts, lengths);
        *sizes = columns.sizes();
        Box::into_raw(Box::new(columns)) as usize
    })
}

/// See [`Columns::write`]; the size of the block comes from [`tfod_parse`].
#[no_mangle]
pub unsafe extern "C" fn tfod_write(
    columns: *const Columns<'static>,
    block: *mut u8,
    capacity: usize,
) -> usize {
    let block = view_mut(block, capacity);
    guarded(|| {
        (*columns).write(block);
        capacity
    })
}

#[no_mangle]
pub unsafe extern "C" fn tfod_free(columns: *mut Columns<'static>) -> usize {
    guarded(|| {
        drop(Box::from_raw(columns));
        0
    })
}

/// See [`crc::crc32c`].
#[no_mangle]
pub unsafe extern "C" fn tfod_crc32c(
    buffer: *const u8,
    length: usize,
    crc: *mut u32,
    count: usize,
) -> usize {
    let (buffer, crc) = (view(buffer, length), view_mut(crc, count));
    guarded(|| {
        crc[0] = crc::crc32c(buffer);
        count
    })
}

/// See [`spans::hash`].
#[no_mangle]
pub unsafe extern "C" fn tfod_hash_spans(
    buffer: *const u8,
    length: usize,
    spans: *const [i64; 2],
    count: usize,
    hashes: *mut u64,
    capacity: usize,
) -> usize {
    let (buffer, spans) = (view(buffer, length), view(spans, count));
    let hashes = view_mut(hashes, capacity);
    guarded(|| {
        spans::hash(buffer, spans, hashes);
        count
    })
}

/// See [`spans::code`]; both outputs have an element for each span.
#[no_mangle]
pub unsafe extern "C" fn tfod_code_spans(
    buffer: *const u8,
    length: usize,
    spans: *const [i64; 2],
    count: usize,
    codes: *mut isize,
    codes_count: usize,
    firsts: *mut isize,
    firsts_count: usize,
) -> usize {
    let (buffer, spans) = (view(buffer, length), view(spans, count));
    let (codes, firsts) = (view_mut(codes, codes_count), view_mut(firsts, firsts_count));
    guarded(|| spans::code(buffer, spans, codes, firsts))
}

/// See [`spans::gather`]; a separator above 255 means none. Returns the number of bytes, and writes
/// them only if `capacity` is this number.
#[no_mangle]
pub unsafe extern "C" fn tfod_gather_spans(
    buffer: *const u8,
    length: usize,
    spans: *const [i64; 2],
    count: usize,
    separator: usize,
    joined: *mut u8,
    capacity: usize,
) -> usize {
    let (buffer, spans) = (view(buffer, length), view(spans, count));
    let joined = view_mut(joined, capacity);
    guarded(|| {
        let separator = u8::try_from(separator).ok();
        let size = spans::gathered_size(buffer, spans, separator);
        if size == capacity {
            spans::gather(buffer, spans, separator, joined);
        }
        size
    })
}

//! What libFuzzer calls: any bytes through the whole kernel, with an eye on memory, and records
//! through both of the parser's ways. `tests/kernel/fuzz` builds and runs it.
#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tfod_kernel::{parse::parse, records, spans};

/// What the kernel declares: bytes for each byte that is handed in, and a little for each call.
const FACTOR: usize = 128;
const CALL: usize = 16 << 10;

struct Counting;
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(LIVE.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        System.alloc(layout)
    }

    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        System.dealloc(data, layout)
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs something, and asserts what it may have allocated at once.
fn within<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let found = work();
    let used = PEAK.load(Relaxed) - before;
    assert!(used <= FACTOR * bytes + CALL, "{used} bytes for {bytes}");
    found
}

/// A batch as a caller reads it: columns and problems, what lies in the buffer as bytes.
type Found =
    (Vec<(Vec<u8>, i64, Vec<u32>, Vec<i64>, Vec<Vec<u8>>)>, Vec<(i64, i64, Option<Vec<u8>>)>);

fn read(buffer: &[u8], starts: &[i64], lengths: &[i64]) -> Found {
    let bytes: i64 = lengths.iter().filter(|length| **length as u64 <= buffer.len() as u64).sum();
    let (sizes, block) = within(bytes as usize + 16 * starts.len(), || {
        let columns = parse(buffer, starts, lengths);
        let sizes = columns.sizes();
        let mut block = vec![0; sizes[2] as usize];
        columns.write(&mut block);
        (sizes, block)
    });
    let word = |at: i64| {
        let at = 8 * at as usize;
        i64::from_le_bytes(block[at..at + 8].try_into().unwrap())
    };
    let bytes =
        |start: i64, length: i64| buffer[start as usize..(start + length) as usize].to_vec();
    let columns = (0..sizes[0] as i64).map(|number| {
        let head: Vec<i64> = (0..8).map(|place| word(8 * number + place)).collect();
        let (kind, rows, count) = (head[2], head[3], head[4]);
        let row = |number: i64| (word(head[5] + number / 2) >> (32 * (number % 2))) as u32;
        let values = (0..count).map(|number| match kind {
            1 => bytes(word(head[7] + 2 * number), word(head[7] + 2 * number + 1)),
            2 => block[8 * head[7] as usize + 4 * number as usize..][..4].to_vec(),
            _ => word(head[7] + number).to_le_bytes().to_vec(),
        });
        let ends: Vec<i64> = (0..rows).map(|number| word(head[6] + number)).collect();
        assert!(ends.windows(2).all(|pair| pair[0] <= pair[1]) && ends.last() == Some(&count));
        (bytes(head[0], head[1]), kind, (0..rows).map(row).collect(), ends, values.collect())
    });
    let problems = (0..sizes[1] as i64).map(|number| {
        let at = 8 * sizes[0] as i64 + 4 * number;
        let key = Some(word(at + 2)).filter(|start| *start >= 0);
        (word(at), word(at + 1), key.map(|start| bytes(start, word(at + 3))))
    });
    (columns.collect(), problems.collect())
}

#[no_mangle]
pub unsafe extern "C" fn LLVMFuzzerTestOneInput(data: *const u8, size: usize) -> i32 {
    let data = if size == 0 { &[] } else { std::slice::from_raw_parts(data, size) };

    // Whole, in two halves, and beyond the end.
    let (half, end) = ((size / 2) as i64, size as i64);
    let batch = read(data, &[0, 0, half, 1], &[end, half, end - half, end]);

    // An empty message before a record changes nothing, but the record is not read in one pass.
    let mut other = Vec::new();
    let halves = data.split_at(size / 2);
    for part in [data, halves.0, halves.1] {
        other.extend_from_slice(b"\n\x00");
        other.extend_from_slice(part);
    }
    let (first, second, third) = (end + 2, half + 2, end - half + 2);
    let starts = [0, first, first + second, first];
    assert!(batch == read(&other, &starts, &[first, second, third, i64::MAX]));

    let (mut starts, mut lengths) = ([0; 8], [0; 8]);
    let (count, position, _) = records::find(data, 1 << 40, &mut starts, &mut lengths);
    assert!(position <= size && count <= 8);
    read(data, &starts[..count], &lengths[..count]);

    // The same bytes as strings: some short, some wherever their own bytes say.
    let mut list: Vec<[i64; 2]> = (0..half.min(64)).map(|at| [at, at % 5]).collect();
    for word in data.chunks_exact(16).take(16) {
        let number = |at: usize| i64::from_le_bytes(word[at..at + 8].try_into().unwrap());
        list.push([number(0), number(8)]);
    }
    let (mut codes, mut firsts, mut hashes) =
        (vec![0; list.len()], vec![0; list.len()], vec![0; list.len()]);
    let known =
        within(size + 16 * list.len(), || spans::code(data, &list, &mut codes, &mut firsts));
    spans::hash(data, &list, &mut hashes);
    for (number, code) in codes.iter().enumerate() {
        let first = firsts[..known][*code as usize];
        assert!(first <= number as isize && hashes[first as usize] == hashes[number]);
    }
    let mut gathered = vec![0; spans::gathered_size(data, &list, Some(0))];
    spans::gather(data, &list, Some(0), &mut gathered);
    0
}

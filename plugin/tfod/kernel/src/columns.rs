//! Columns of Examples, one for each key and kind of list, as ragged arrays, and the block of words
//! that the caller gets.

use crate::dictionary::Dictionary;

pub const NO_LIST: u32 = 0;
pub const BYTES: u32 = 1;
pub const FLOAT: u32 = 2;
pub const INT64: u32 = 3;
/// The bytes of a value of each kind; for bytes, the start and length in the buffer are stored.
const WIDTH: [usize; 4] = [1, 16, 4, 8];
/// No row, no column, no key.
pub const NOWHERE: u32 = u32::MAX;

/// The problems of a row, or of a feature in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// protobuf rejects the record, so the row has no values.
    Malformed = 1,
    /// The record has the feature lists of a SequenceExample, which TensorFlow rejects.
    SequenceExample = 2,
    /// A key occurs several times; the last one counts.
    RepeatedKey = 3,
    /// A feature has several lists, of the same or of different kinds.
    SeveralLists = 4,
    /// There are unknown fields, wrong wire types, or numbers both packed and unpacked.
    Unusual = 5,
}

#[derive(Clone, Copy)]
struct Problem {
    row: u32,
    code: Code,
    key: u32,
}

/// The values of a key and kind, row by row.
pub struct Column {
    key: u32,
    pub kind: u32,
    /// The rows with the feature, ascending.
    rows: Vec<u32>,
    /// The end of each row in `values`, as a number of values.
    ends: Vec<u64>,
    /// Little-endian, as in the output, and as floats in the wire format.
    pub values: Vec<u8>,
}

impl Column {
    pub fn new(key: u32, kind: u32) -> Self {
        Column { key, kind, rows: Vec::new(), ends: Vec::new(), values: Vec::new() }
    }

    /// Ends the last row after the values that have been read.
    #[inline]
    pub fn end_row(&mut self) {
        let count = self.count();
        if let Some(end) = self.ends.last_mut() {
            *end = count as u64;
        }
    }

    fn count(&self) -> usize {
        self.values.len() / WIDTH[self.kind as usize]
    }

    /// Returns the lengths of the rows, the ends and the values in bytes.
    fn lengths(&self) -> [usize; 3] {
        [4 * self.rows.len(), 8 * self.ends.len(), self.values.len()]
    }

    fn drop_row(&mut self) {
        self.rows.pop();
        self.ends.pop();
        let count = self.ends.last().map_or(0, |end| *end as usize);
        self.values.truncate(count * WIDTH[self.kind as usize]);
    }
}

/// A key and its state.
pub struct Key<'a> {
    pub name: &'a [u8],
    /// Whether the name is UTF-8, which protobuf requires.
    pub is_utf8: bool,
    /// The column of each kind.
    columns: [u32; 4],
    /// The last row with the key, and the index of the feature in that row.
    pub last: (u32, u32),
    /// The last row with a problem of this key, and a bit for each code.
    reported: (u32, u32),
    /// The key that followed last time.
    pub next: u32,
}

/// The columns of a batch while they grow.
pub struct Columns<'a> {
    buffer: &'a [u8],
    pub keys: Vec<Key<'a>>,
    pub columns: Vec<Column>,
    problems: Vec<Problem>,
    numbers: Dictionary<'a>,
    /// The problems of the current row without a key, a bit for each code.
    reported: u32,
    /// The columns with values of the current row.
    touched: Vec<u32>,
    first_problem: usize,
}

impl<'a> Columns<'a> {
    pub fn new(buffer: &'a [u8]) -> Self {
        Columns {
            buffer,
            keys: Vec::new(),
            columns: Vec::new(),
            problems: Vec::new(),
            numbers: Dictionary::new(),
            reported: 0,
            touched: Vec::new(),
            first_problem: 0,
        }
    }

    /// Returns the number of a key, or none if it is not UTF-8.
    #[inline]
    pub fn key(&mut self, name: &'a [u8]) -> Option<u32> {
        let number = self.numbers.number(name, self.keys.len() as u32);
        if number as usize == self.keys.len() {
            self.keys.push(Key {
                name,
                is_utf8: std::str::from_utf8(name).is_ok(),
                columns: [NOWHERE; 4],
                last: (NOWHERE, 0),
                reported: (NOWHERE, 0),
                next: NOWHERE,
            });
        }
        Some(number).filter(|number| self.keys[*number as usize].is_utf8)
    }

    pub fn begin_record(&mut self) {
        self.reported = 0;
        self.touched.clear();
        self.first_problem = self.problems.len();
    }

    /// Removes everything that the current record has added.
    pub fn undo_record(&mut self, row: u32) {
        while let Some(index) = self.touched.pop() {
            // The column may have been removed already.
            let column = self.columns.get(index as usize);
            if column.map_or(false, |column| column.rows.last() == Some(&row)) {
                self.drop_row(index);
            }
        }
        for problem in self.problems.drain(self.first_problem..) {
            if let Some(key) = self.keys.get_mut(problem.key as usize) {
                key.reported = (NOWHERE, 0);
            }
        }
        self.reported = 0;
    }

    /// Begins a row of a column.
    #[inline]
    pub fn begin_row(&mut self, key: u32, kind: u32, row: u32) -> u32 {
        let slot = &mut self.keys[key as usize].columns[kind as usize];
        if *slot == NOWHERE {
            *slot = self.columns.len() as u32;
            self.columns.push(Column::new(key, kind));
        }
        let index = *slot;
        let column = &mut self.columns[index as usize];
        self.touched.push(index);
        column.rows.push(row);
        column.ends.push(column.ends.last().map_or(0, |end| *end));
        index
    }

    /// Removes the last row of a column. If the column is empty then, the current record has created
    /// it, and later columns have been removed already. The column is removed, too, so that the
    /// columns stay in the order of their first rows.
    pub fn drop_row(&mut self, index: u32) {
        let column = &mut self.columns[index as usize];
        column.drop_row();
        if column.rows.is_empty() {
            self.keys[column.key as usize].columns[column.kind as usize] = NOWHERE;
            self.columns.truncate(index as usize);
        }
    }

    /// Adds a problem of a row, unless it has the problem already.
    pub fn add_problem(&mut self, row: u32, key: u32, code: Code) {
        let reported = match self.keys.get_mut(key as usize) {
            Some(key) => {
                if key.reported.0 != row {
                    key.reported = (row, 0);
                }
                &mut key.reported.1
            }
            None => &mut self.reported,
        };
        if *reported & 1 << code as u32 == 0 {
            *reported |= 1 << code as u32;
            self.problems.push(Problem { row, code, key });
        }
    }

    /// Returns the numbers of columns and problems, and the size of the block in bytes.
    pub fn sizes(&self) -> [u64; 3] {
        let data: usize = self.columns.iter().flat_map(Column::lengths).map(padded).sum();
        let (columns, problems) = (self.columns.len(), self.problems.len());
        [columns as u64, problems as u64, (columns * COLUMN + problems * PROBLEM + data) as u64]
    }

    /// Writes the block: a [`COLUMN`] for each column, a [`PROBLEM`] for each problem, then the rows,
    /// ends and values of the columns. It does not read the buffer again.
    pub fn write(&self, block: &mut [u8]) {
        let (columns, tail) = block.split_at_mut(self.columns.len() * COLUMN);
        let (problems, mut data) = tail.split_at_mut(self.problems.len() * PROBLEM);
        let mut word = (columns.len() + problems.len()) / 8;
        for (column, out) in self.columns.iter().zip(columns.chunks_exact_mut(COLUMN)) {
            let [rows, ends, values] = column.lengths();
            let mut begins = [0; 3];
            for (begin, length) in begins.iter_mut().zip([rows, ends, values]) {
                *begin = word as i64;
                word += padded(length) / 8;
            }
            let (name, count) =
                (span(self.buffer, self.keys[column.key as usize].name), column.rows.len());
            let (kind, values) = (i64::from(column.kind), column.count() as i64);
            let [rows_at, ends_at, values_at] = begins;
            let head = [name[0], name[1], kind, count as i64, values, rows_at, ends_at, values_at];
            copy(out, &head, i64::to_le_bytes);
            data = copy(data, &column.rows, u32::to_le_bytes);
            data = copy(data, &column.ends, u64::to_le_bytes);
            data = copy(data, &column.values, |byte| [byte]);
        }
        for (problem, out) in self.problems.iter().zip(problems.chunks_exact_mut(PROBLEM)) {
            let name = self.keys.get(problem.key as usize).map(|key| span(self.buffer, key.name));
            let [start, length] = name.unwrap_or([-1, 0]);
            let words = [i64::from(problem.row), problem.code as i64, start, length];
            copy(out, &words, i64::to_le_bytes);
        }
    }
}

/// The size of eight words: start and length of the key in the buffer, kind, number of rows, number
/// of values, and the words at which the rows (`u32`), the ends (`u64`) and the values begin.
const COLUMN: usize = 64;
/// The size of four words: row, code, start (-1 without a key) and length of the key.
const PROBLEM: usize = 32;

fn padded(bytes: usize) -> usize {
    (bytes + 7) / 8 * 8
}

/// Returns start and length of a part of the buffer.
pub fn span(buffer: &[u8], part: &[u8]) -> [i64; 2] {
    let start = (part.as_ptr() as usize).wrapping_sub(buffer.as_ptr() as usize);
    [start as i64, part.len() as i64]
}

/// Writes numbers and padding, and returns the remaining output.
fn copy<'b, T: Copy, const N: usize>(
    out: &'b mut [u8],
    numbers: &[T],
    bytes: impl Fn(T) -> [u8; N],
) -> &'b mut [u8] {
    let (target, tail) = out.split_at_mut(padded(N * numbers.len()));
    let (filled, padding) = target.split_at_mut(N * numbers.len());
    for (out, number) in filled.chunks_exact_mut(N).zip(numbers) {
        out.copy_from_slice(&bytes(*number));
    }
    padding.fill(0);
    tail
}

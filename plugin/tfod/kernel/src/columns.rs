//! Columns of Examples, one for each key and kind of list, as in a ragged tensor; and how they are
//! handed over, in one block of words.

use crate::dictionary::Dictionary;

pub const NO_LIST: u32 = 0;
pub const BYTES: u32 = 1;
pub const FLOAT: u32 = 2;
pub const INT64: u32 = 3;
/// Bytes of a value of each kind; of bytes start and length in the buffer are kept.
const WIDTH: [usize; 4] = [1, 16, 4, 8];
/// No row, no column, no key.
pub const NOWHERE: u32 = u32::MAX;

/// What is to be said of a row, or of one feature in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// protobuf refuses the record: the row has no values.
    Malformed = 1,
    /// It has the feature lists of a SequenceExample, which TensorFlow refuses.
    SequenceExample = 2,
    /// A key comes more than once: the last one counts.
    RepeatedKey = 3,
    /// A feature has lists of several kinds, or one kind twice.
    SeveralLists = 4,
    /// Fields that are unknown or of another wire type, or numbers that are spelled in two ways.
    Unusual = 5,
}

#[derive(Clone, Copy)]
struct Problem {
    row: u32,
    code: Code,
    key: u32,
}

/// The values of one key and kind, row after row.
pub struct Column {
    key: u32,
    pub kind: u32,
    /// The rows that have the feature, ascending.
    rows: Vec<u32>,
    /// For each of them how many values there are up to its end.
    ends: Vec<u64>,
    /// Little-endian, as they are handed over and as floats are on the wire.
    pub values: Vec<u8>,
}

impl Column {
    pub fn new(key: u32, kind: u32) -> Self {
        Column { key, kind, rows: Vec::new(), ends: Vec::new(), values: Vec::new() }
    }

    /// What has been read is the end of the last row.
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

    /// In bytes: of the rows, of the ends, of the values.
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

/// A key, and what the rows have of it.
pub struct Key<'a> {
    pub name: &'a [u8],
    /// It is UTF-8, as protobuf's strings are.
    pub sound: bool,
    /// The column of each kind.
    columns: [u32; 4],
    /// The last row that has it, and which of that row's features it is.
    pub last: (u32, u32),
    /// The last row of which something was said because of it, and what: a bit for each code.
    said: (u32, u32),
    /// The key that came behind it last time.
    pub next: u32,
}

/// The columns of a batch while they grow.
pub struct Columns<'a> {
    pub keys: Vec<Key<'a>>,
    pub columns: Vec<Column>,
    problems: Vec<Problem>,
    numbers: Dictionary<'a>,
    /// What the present row has said of itself, and the columns that have got it.
    said: u32,
    touched: Vec<u32>,
    known_problems: usize,
}

impl<'a> Columns<'a> {
    pub fn new() -> Self {
        Columns {
            keys: Vec::new(),
            columns: Vec::new(),
            problems: Vec::new(),
            numbers: Dictionary::new(),
            said: 0,
            touched: Vec::new(),
            known_problems: 0,
        }
    }

    /// The number of a key; none where it is not UTF-8.
    #[inline]
    pub fn key(&mut self, name: &'a [u8]) -> Option<u32> {
        let number = self.numbers.number(name, self.keys.len() as u32);
        if number as usize == self.keys.len() {
            self.keys.push(Key {
                name,
                sound: std::str::from_utf8(name).is_ok(),
                columns: [NOWHERE; 4],
                last: (NOWHERE, 0),
                said: (NOWHERE, 0),
                next: NOWHERE,
            });
        }
        Some(number).filter(|number| self.keys[*number as usize].sound)
    }

    pub fn begin_record(&mut self) {
        self.said = 0;
        self.touched.clear();
        self.known_problems = self.problems.len();
    }

    /// Takes back what the present record has left.
    pub fn undo_record(&mut self, row: u32) {
        while let Some(place) = self.touched.pop() {
            // One that was taken back before may be gone.
            if self.columns.get(place as usize).map_or(false, |one| one.rows.last() == Some(&row)) {
                self.drop_row(place);
            }
        }
        for problem in self.problems.drain(self.known_problems..) {
            if let Some(key) = self.keys.get_mut(problem.key as usize) {
                key.said = (NOWHERE, 0);
            }
        }
        self.said = 0;
    }

    /// Opens a row of a column.
    #[inline]
    pub fn begin_row(&mut self, key: u32, kind: u32, row: u32) -> u32 {
        let slot = &mut self.keys[key as usize].columns[kind as usize];
        if *slot == NOWHERE {
            *slot = self.columns.len() as u32;
            self.columns.push(Column::new(key, kind));
        }
        let place = *slot;
        let column = &mut self.columns[place as usize];
        self.touched.push(place);
        column.rows.push(row);
        column.ends.push(column.ends.last().map_or(0, |end| *end));
        place
    }

    /// Takes back the last row of a column. One that is empty then was begun by the present record,
    /// and none behind it is left: it goes, so that the columns are in the order of their first rows.
    pub fn drop_row(&mut self, place: u32) {
        let column = &mut self.columns[place as usize];
        column.drop_row();
        if column.rows.is_empty() {
            self.keys[column.key as usize].columns[column.kind as usize] = NOWHERE;
            self.columns.truncate(place as usize);
        }
    }

    /// Says something of a row, once.
    pub fn say(&mut self, row: u32, key: u32, code: Code) {
        let said = match self.keys.get_mut(key as usize) {
            Some(key) => {
                if key.said.0 != row {
                    key.said = (row, 0);
                }
                &mut key.said.1
            }
            None => &mut self.said,
        };
        if *said & 1 << code as u32 == 0 {
            *said |= 1 << code as u32;
            self.problems.push(Problem { row, code, key });
        }
    }

    /// How many columns and problems there are, and bytes in the block.
    pub fn sizes(&self) -> [u64; 3] {
        let data: usize = self.columns.iter().flat_map(Column::lengths).map(padded).sum();
        let (columns, problems) = (self.columns.len(), self.problems.len());
        [columns as u64, problems as u64, (columns * COLUMN + problems * PROBLEM + data) as u64]
    }

    /// Writes everything: a [`COLUMN`] for each column, a [`PROBLEM`] for each problem, then what
    /// the columns hold.
    pub fn write(&self, buffer: &[u8], block: &mut [u8]) {
        let (columns, rest) = block.split_at_mut(self.columns.len() * COLUMN);
        let (problems, mut rest) = rest.split_at_mut(self.problems.len() * PROBLEM);
        let mut word = (columns.len() + problems.len()) / 8;
        for (column, out) in self.columns.iter().zip(columns.chunks_exact_mut(COLUMN)) {
            let [rows, ends, values] = column.lengths();
            let mut begins = [0; 3];
            for (begin, length) in begins.iter_mut().zip([rows, ends, values]) {
                *begin = word as i64;
                word += padded(length) / 8;
            }
            let (name, count) =
                (span(buffer, self.keys[column.key as usize].name), column.rows.len());
            let (kind, values) = (i64::from(column.kind), column.count() as i64);
            let [rows_at, ends_at, values_at] = begins;
            let head = [name[0], name[1], kind, count as i64, values, rows_at, ends_at, values_at];
            copy(out, &head, i64::to_le_bytes);
            rest = copy(rest, &column.rows, u32::to_le_bytes);
            rest = copy(rest, &column.ends, u64::to_le_bytes);
            rest = copy(rest, &column.values, |byte| [byte]);
        }
        for (problem, out) in self.problems.iter().zip(problems.chunks_exact_mut(PROBLEM)) {
            let name = self.keys.get(problem.key as usize).map(|key| span(buffer, key.name));
            let [start, length] = name.unwrap_or([-1, 0]);
            let what = [i64::from(problem.row), problem.code as i64, start, length];
            copy(out, &what, i64::to_le_bytes);
        }
    }
}

/// Bytes of eight words: start and length of the key in the buffer, kind, count of rows and of
/// values, and the word in which the rows (`u32`), the ends (`u64`) and the values begin.
const COLUMN: usize = 64;
/// Bytes of four words: row, code, start (-1 where no key is concerned) and length of the key.
const PROBLEM: usize = 32;

fn padded(bytes: usize) -> usize {
    (bytes + 7) / 8 * 8
}

/// Where some bytes of the buffer are in it.
pub fn span(buffer: &[u8], part: &[u8]) -> [i64; 2] {
    let start = (part.as_ptr() as usize).wrapping_sub(buffer.as_ptr() as usize);
    [start as i64, part.len() as i64]
}

/// Writes numbers, and returns the room behind them and their padding.
fn copy<'b, T: Copy, const N: usize>(
    out: &'b mut [u8],
    numbers: &[T],
    bytes: impl Fn(T) -> [u8; N],
) -> &'b mut [u8] {
    let (here, rest) = out.split_at_mut(padded(N * numbers.len()));
    let (filled, padding) = here.split_at_mut(N * numbers.len());
    for (out, number) in filled.chunks_exact_mut(N).zip(numbers) {
        out.copy_from_slice(&bytes(*number));
    }
    padding.fill(0);
    rest
}

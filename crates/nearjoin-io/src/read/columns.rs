//! Arrow columns become rows of coordinates: for Parquet and Arrow files.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType};
use arrow_schema::{DataType, Schema};
use arrow_select::concat::concat;

use crate::error::{Error, Place, Remedy, Result};
use crate::format::DType;
use crate::quote::{bare, one_line, quoted_all};
use crate::read::number::{Coordinate, Number, convert};
use crate::read::points::check_dimension;
use crate::read::{ReadOptions, in_order, select};

/// Which columns of a schema are read, and what becomes of them.
#[derive(Debug)]
pub(crate) struct Choice {
    /// The columns that are read, each once, ascending.
    pub(crate) read: Vec<usize>,
    /// The coordinates, as positions in `read`.
    coordinates: Vec<usize>,
    /// The ids, as a position in `read`.
    id: Option<usize>,
    /// Names of the columns in `read`.
    names: Vec<String>,
    list: Option<List>,
    pub(crate) dtype: DType,
}

/// How the lists of a column say how long they are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum List {
    /// In the schema.
    Fixed(usize),
    /// Row by row: all must be as long as the first.
    Varying,
}

impl Choice {
    pub(crate) fn new(file: &str, schema: &Schema, options: &ReadOptions) -> Result<Self> {
        let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let types: Vec<&DataType> = schema.fields().iter().map(|field| field.data_type()).collect();
        let id = options.id.as_ref().map(|id| select::find_id(file, &names, id)).transpose()?;
        let coordinates = match &options.columns {
            Some(wanted) => select::find_all(file, &names, wanted)?,
            None => all_but(file, id, &names, &types)?,
        };
        if coordinates.is_empty() {
            return Err(Error::content(file, "there is no column of coordinates"));
        }

        let mut list = None;
        let mut narrow = true;
        for &column in &coordinates {
            let (kind, number) = match types[column] {
                DataType::FixedSizeList(item, length) => {
                    let length = usize::try_from(*length).unwrap_or(0);
                    (Some(List::Fixed(length)), item.data_type())
                }
                DataType::List(item) | DataType::LargeList(item) => {
                    (Some(List::Varying), item.data_type())
                }
                number => (None, number),
            };
            let place = || Place::column(&names[column]);
            if !is_number(number) {
                return Err(unsuited(file, place(), types[column], options));
            }
            if kind.is_some() && coordinates.len() > 1 {
                let problem = "a column of lists must be the only one".to_owned();
                return Err(Error::options(file, place(), problem, Remedy::ChooseListOrColumns));
            }
            narrow &= matches!(number, DataType::Float16 | DataType::Float32);
            list = kind;
        }

        let mut read = coordinates.clone();
        read.extend(id);
        read.sort_unstable();
        read.dedup();
        let position = |column: usize| read.binary_search(&column).unwrap_or(0);
        Ok(Choice {
            coordinates: coordinates.iter().map(|&column| position(column)).collect(),
            id: id.map(position),
            names: read.iter().map(|&column| names[column].clone()).collect(),
            read,
            list,
            dtype: options.dtype.unwrap_or(if narrow { DType::F32 } else { DType::F64 }),
        })
    }

    /// Whether no column that is read is nested.
    pub(crate) fn is_flat(&self, schema: &Schema) -> bool {
        self.read.iter().all(|&column| !schema.field(column).data_type().is_nested())
    }

    /// The number of coordinates, where the schema says it.
    pub(crate) fn dimension(&self) -> Option<usize> {
        match self.list {
            None => Some(self.coordinates.len()),
            Some(List::Fixed(length)) => Some(length),
            Some(List::Varying) => None,
        }
    }

    /// The number of coordinates that the first row shows, for lists of any length.
    pub(crate) fn dimension_of_first_row(&self, file: &str, arrays: &[ArrayRef]) -> Result<usize> {
        let column = self.coordinates[0];
        let array = &arrays[column];
        self.no_nulls(file, column, array, 0)?;
        let dimension = match array.data_type() {
            DataType::List(_) => array.as_list::<i32>().value_length(0) as usize,
            _ => array.as_list::<i64>().value_length(0) as usize,
        };
        check_dimension(file, dimension)?;
        Ok(dimension)
    }

    pub(crate) fn no_rows(&self, file: &str) -> Error {
        Error::Content {
            file: file.to_owned(),
            place: Place::column(&self.names[self.coordinates[0]]),
            problem: "there are no rows, so the length of the lists is not known".to_owned(),
        }
    }

    /// The name of every coordinate.
    pub(crate) fn coordinate_names(&self, dimension: usize) -> Vec<String> {
        match self.list {
            None => self.coordinates.iter().map(|&column| self.names[column].clone()).collect(),
            Some(_) => {
                let name = &self.names[self.coordinates[0]];
                (0..dimension).map(|at| format!("{name}[{at}]")).collect()
            }
        }
    }

    /// Writes the coordinates of some rows: `arrays` as `read` lists them.
    pub(crate) fn fill<T: Coordinate>(
        &self,
        file: &str,
        arrays: &[ArrayRef],
        first_row: u64,
        dimension: usize,
        out: &mut [T],
    ) -> Result<()> {
        const ROWS: usize = 1 << 14;
        if out.len() > 4 * ROWS * dimension {
            let blocks = out.chunks_mut(ROWS * dimension).enumerate().collect();
            in_order(blocks, |(block, out): (usize, &mut [T])| {
                let rows = out.len() / dimension;
                let slice = |array: &ArrayRef| array.slice(block * ROWS, rows);
                let arrays: Vec<ArrayRef> = arrays.iter().map(slice).collect();
                self.fill(file, &arrays, first_row + (block * ROWS) as u64, dimension, out)
            })?;
            return Ok(());
        }
        for (at, &column) in self.coordinates.iter().enumerate() {
            let array = &arrays[column];
            self.no_nulls(file, column, array, first_row)?;
            let (values, stride, out) = match self.list {
                None => (array.clone(), dimension, out.get_mut(at..).unwrap_or_default()),
                Some(_) => {
                    let items = self.items(file, array, first_row, dimension)?;
                    (items, 1, &mut *out)
                }
            };
            let place = |index: usize| match self.list {
                None => Place::column(&self.names[column]).at(first_row + index as u64),
                Some(_) => self.item_place(first_row, index, dimension),
            };
            write(file, &values, out, stride, place)?;
        }
        Ok(())
    }

    /// The ids of some rows, which must all have one.
    pub(crate) fn ids(
        &self,
        file: &str,
        arrays: &[ArrayRef],
        first_row: u64,
    ) -> Result<Option<ArrayRef>> {
        let Some(id) = self.id else { return Ok(None) };
        self.no_nulls(file, id, &arrays[id], first_row)?;
        Ok(Some(arrays[id].clone()))
    }

    /// The ids of some rows in memory of their own: a decoder may cut all columns from one
    /// piece of memory, which a single one of them would keep.
    pub(crate) fn own_ids(
        &self,
        file: &str,
        arrays: &[ArrayRef],
        first_row: u64,
    ) -> Result<Option<ArrayRef>> {
        let Some(ids) = self.ids(file, arrays, first_row)? else { return Ok(None) };
        let ids: ArrayRef = match ids.data_type() {
            DataType::Utf8View => Arc::new(ids.as_string_view().gc()),
            DataType::BinaryView => Arc::new(ids.as_binary_view().gc()),
            _ => ids,
        };
        // One array alone would not be copied.
        self.concat_ids(file, &[&ids, &ids.slice(0, 0)]).map(Some)
    }

    /// The ids of all rows, in one array.
    pub(crate) fn join_ids(
        &self,
        file: &str,
        schema: &Schema,
        parts: &[ArrayRef],
    ) -> Result<Option<ArrayRef>> {
        let Some(id) = self.id else { return Ok(None) };
        let parts: Vec<&dyn Array> = parts.iter().map(|part| part.as_ref()).collect();
        match parts.as_slice() {
            [] => {
                let kind = schema.field(self.read[id]).data_type();
                Ok(Some(arrow_array::new_empty_array(kind)))
            }
            parts => self.concat_ids(file, parts).map(Some),
        }
    }

    fn concat_ids(&self, file: &str, parts: &[&dyn Array]) -> Result<ArrayRef> {
        concat(parts).map_err(|error| Error::Content {
            file: file.to_owned(),
            place: Place { column: self.id.map(|id| self.names[id].clone()), ..Place::default() },
            problem: format!("the ids do not fit one array: {}", one_line(error)),
        })
    }

    fn no_nulls(&self, file: &str, column: usize, array: &ArrayRef, first_row: u64) -> Result<()> {
        match first_null(array) {
            None => Ok(()),
            Some(index) => {
                let place = Place::column(&self.names[column]).at(first_row + index as u64);
                Err(null(file, place))
            }
        }
    }

    fn item_place(&self, first_row: u64, index: usize, dimension: usize) -> Place {
        let name = &self.names[self.coordinates[0]];
        let row = first_row + (index / dimension) as u64;
        Place::column(format!("{name}[{}]", index % dimension)).at(row)
    }

    /// The items of lists that are all of one length.
    fn items(
        &self,
        file: &str,
        array: &ArrayRef,
        first_row: u64,
        dimension: usize,
    ) -> Result<ArrayRef> {
        let (items, start) = match array.data_type() {
            DataType::FixedSizeList(..) => {
                let lists = array.as_fixed_size_list();
                (lists.values(), lists.value_offset_at(0))
            }
            DataType::List(_) => {
                let lists = array.as_list::<i32>();
                let lengths = lists.offsets().lengths();
                self.equal_lengths(file, lengths, first_row, dimension)?;
                (lists.values(), lists.offsets()[0] as usize)
            }
            _ => {
                let lists = array.as_list::<i64>();
                let lengths = lists.offsets().lengths();
                self.equal_lengths(file, lengths, first_row, dimension)?;
                (lists.values(), lists.offsets()[0] as usize)
            }
        };
        let items = items.slice(start, array.len() * dimension);
        match first_null(&items) {
            None => Ok(items),
            Some(index) => Err(null(file, self.item_place(first_row, index, dimension))),
        }
    }

    fn equal_lengths(
        &self,
        file: &str,
        mut lengths: impl Iterator<Item = usize>,
        first_row: u64,
        dimension: usize,
    ) -> Result<()> {
        let mut row = first_row;
        let other = lengths.find(|length| {
            row += 1;
            *length != dimension
        });
        match other {
            None => Ok(()),
            Some(length) => Err(Error::Content {
                file: file.to_owned(),
                place: Place::column(&self.names[self.coordinates[0]]).at(row - 1),
                problem: format!("the list has {length} items, the first row's has {dimension}"),
            }),
        }
    }
}

/// The default: everything that is not the id. A column of lists must stand alone.
fn all_but(
    file: &str,
    id: Option<usize>,
    names: &[String],
    types: &[&DataType],
) -> Result<Vec<usize>> {
    let all: Vec<usize> = (0..types.len()).filter(|column| Some(*column) != id).collect();
    let list = all.iter().copied().find(|&column| is_list(types[column]));
    match list.filter(|_| all.len() > 1) {
        None => Ok(all),
        Some(list) => {
            let others: Vec<&String> =
                all.iter().filter(|&&column| column != list).map(|&at| &names[at]).collect();
            let there_are = if others.len() == 1 { "is the column" } else { "are the columns" };
            let problem = format!(
                "the column holds lists, and there {there_are} {} beside it",
                quoted_all(&others)
            );
            let place = Place::column(&names[list]);
            Err(Error::options(file, place, problem, Remedy::ChooseListOrColumns))
        }
    }
}

fn is_list(kind: &DataType) -> bool {
    match kind {
        DataType::FixedSizeList(item, _) | DataType::List(item) | DataType::LargeList(item) => {
            is_number(item.data_type())
        }
        _ => false,
    }
}

fn is_number(kind: &DataType) -> bool {
    kind.is_integer() || matches!(kind, DataType::Float16 | DataType::Float32 | DataType::Float64)
}

/// Why a column cannot be a coordinate.
fn unsuited(file: &str, place: Place, kind: &DataType, options: &ReadOptions) -> Error {
    let file = file.to_owned();
    let kind = match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".to_owned(),
        DataType::Boolean => "booleans".to_owned(),
        DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => {
            let problem = "the column holds decimals, which are not read as coordinates: store \
                           them as f64"
                .to_owned();
            return Error::Content { file, place, problem };
        }
        DataType::Struct(_) => "structs".to_owned(),
        kind if kind.is_nested() => "nested values".to_owned(),
        kind => bare(&kind.to_string()),
    };
    let problem = format!("the column holds {kind}, not numbers");
    match options.columns {
        None => Error::options(&file, place, problem, Remedy::ChooseColumns),
        Some(_) => Error::Content { file, place, problem },
    }
}

fn first_null(array: &ArrayRef) -> Option<usize> {
    let nulls = array.logical_nulls()?;
    match nulls.null_count() {
        0 => None,
        _ => (0..nulls.len()).find(|&index| nulls.is_null(index)),
    }
}

fn null(file: &str, place: Place) -> Error {
    Error::Content { file: file.to_owned(), place, problem: "the value is missing".to_owned() }
}

/// Writes an array of numbers to every `stride`-th coordinate.
fn write<T: Coordinate>(
    file: &str,
    values: &ArrayRef,
    out: &mut [T],
    stride: usize,
    place: impl Fn(usize) -> Place,
) -> Result<()> {
    match values.data_type() {
        DataType::Float64 => write_as::<Float64Type, T>(file, values, out, stride, place),
        DataType::Float32 => write_as::<Float32Type, T>(file, values, out, stride, place),
        DataType::Float16 => write_as::<Float16Type, T>(file, values, out, stride, place),
        DataType::Int64 => write_as::<Int64Type, T>(file, values, out, stride, place),
        DataType::Int32 => write_as::<Int32Type, T>(file, values, out, stride, place),
        DataType::Int16 => write_as::<Int16Type, T>(file, values, out, stride, place),
        DataType::Int8 => write_as::<Int8Type, T>(file, values, out, stride, place),
        DataType::UInt64 => write_as::<UInt64Type, T>(file, values, out, stride, place),
        DataType::UInt32 => write_as::<UInt32Type, T>(file, values, out, stride, place),
        DataType::UInt16 => write_as::<UInt16Type, T>(file, values, out, stride, place),
        DataType::UInt8 => write_as::<UInt8Type, T>(file, values, out, stride, place),
        kind => unreachable!("{kind} was refused with the schema"),
    }
}

fn write_as<N, T: Coordinate>(
    file: &str,
    values: &ArrayRef,
    out: &mut [T],
    stride: usize,
    place: impl Fn(usize) -> Place,
) -> Result<()>
where
    N: ArrowPrimitiveType<Native: Number>,
{
    let numbers = values.as_primitive::<N>().values();
    convert(numbers, out, stride).map_err(|index| numbers[index].refuse::<T>(file, place(index)))
}

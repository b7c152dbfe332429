//! What queries are called outside: by their rows in a whole join, by their places in a part.

use crate::index::Run;

/// What the number of a query is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Numbers<'a> {
    /// Its row: these are all queries.
    Rows,
    /// Its row, of which another device may answer some: pairs are met as in a part.
    Shared,
    /// Its place behind the first of a range of positions.
    Places { first: u32 },
    /// Its place among these rows.
    Of(&'a [u32]),
}

impl Numbers<'_> {
    pub(super) fn is_whole(&self) -> bool {
        matches!(self, Numbers::Rows)
    }

    /// The row of the whole input that the query with an id of its layout is.
    pub(super) fn row(&self, id: u32) -> u32 {
        match self {
            Numbers::Of(rows) => rows[id as usize],
            _ => id,
        }
    }

    /// The numbers of the queries of a block, whose layout has these ids, and of those that are
    /// likely to come next. `places` is room for them.
    #[inline(always)]
    pub(super) fn of<'b>(
        &self,
        ids: &'b [u32],
        block: &Run,
        places: &'b mut Vec<u32>,
    ) -> (&'b [u32], &'b [u32]) {
        match *self {
            Numbers::Places { first } => {
                places.clear();
                places.extend(block.clone().map(|position| position - first));
                (places, &[])
            }
            _ => ids[block.start as usize..].split_at(block.len()),
        }
    }
}

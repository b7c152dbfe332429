//! The order of the queue: queries in crowded cells first (§4.5).
//!
//! The paper counts the points in the cell of each query, and sorts by that. Here populations that
//! differ by less than a factor of two count as equal, and queries of equal ones stay in the order of
//! the cells: a batch of the CPU is then some compact regions, where the exact order would scatter
//! the queries of a uniform set all over it. Both sides are sorted by cell on the host, which takes
//! as long as a tree takes to be built in part, and is done once.

use crate::error::Result;
use crate::index::grid::Shape;
use crate::index::order::Sorted;
use crate::memory::with_capacity;
use crate::points::Points;
use crate::scalar::Scalar;

/// Classes of populations: of none, of 1, of 2 and 3, of 4 to 7, and so on.
const CLASSES: usize = usize::BITS as usize + 1;

/// The queries of a join in the order of the queue.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// Those in crowded cells first.
    pub(super) queries: Vec<u32>,
    /// Those in cells with more points than a GPU should look at.
    pub(super) crowded: Vec<u32>,
}

impl Order {
    /// Sorts queries, which are all left points or those in these rows, by the populations of their
    /// cells among the right points. None of them is in a cell of more than `most`.
    pub(super) fn new<T: Scalar>(
        shape: &Shape,
        (left, rows): (Points<'_, T>, Option<&[u32]>),
        right: Points<'_, T>,
        most: usize,
    ) -> Result<Self> {
        let len = rows.map_or(left.len(), <[u32]>::len);
        let row_of = |number: usize| rows.map_or(number, |rows| rows[number] as usize);
        let cells = Sorted::by_key(right.len(), |row| shape.key(right.row(row)))?;
        let asking = Sorted::by_key(len, |number| shape.key(left.row(row_of(number))))?;
        let mut populations: Vec<u32> = with_capacity(len)?;
        let (mut start, mut end) = (0, 0);
        for at in 0..len {
            let key = asking.key(at);
            while start < cells.len() && cells.key(start) < key {
                start += 1;
            }
            end = end.max(start);
            while end < cells.len() && cells.key(end) == key {
                end += 1;
            }
            populations.push((end - start) as u32);
        }
        drop(cells);
        let numbers = asking.ids()?;
        drop(asking);
        let class =
            |population: u32| CLASSES - 1 - (u32::BITS - population.leading_zeros()) as usize;
        let is_crowded = |population: u32| population as usize > most;
        let mut places = [0; CLASSES];
        for &population in populations.iter().filter(|&&population| !is_crowded(population)) {
            places[class(population)] += 1;
        }
        let mut first = 0;
        for place in &mut places {
            (*place, first) = (first, first + *place);
        }
        let mut queries = with_capacity(first)?;
        queries.resize(first, 0);
        let mut crowded = with_capacity(len - first)?;
        for (&number, &population) in numbers.iter().zip(&populations) {
            if is_crowded(population) {
                crowded.push(number);
                continue;
            }
            let place = &mut places[class(population)];
            queries[*place] = number;
            *place += 1;
        }
        Ok(Order { queries, crowded })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::grid::Axis;

    #[test]
    fn dense_cells_come_first_and_the_densest_are_crowded() {
        let shape = Shape { axes: vec![Axis::new(0, 0.0, 1.0, 10)] };
        // One in cell 0, three in cell 1, two in cell 4, and nine in cell 7.
        let data = [7.1, 0.5, 1.2, 4.4, 1.5, 7.2, 1.9, 4.6, 7.3, 7.3, 7.3, 7.4, 7.5, 7.6, 7.7];
        let points = Points::new(&data, 1).unwrap();
        let order = Order::new(&shape, (points, None), points, 100).unwrap();
        assert_eq!(order.queries[..9], [0, 5, 8, 9, 10, 11, 12, 13, 14]);
        // Two and three are of one class, in the order of their cells.
        assert_eq!(order.queries[9..], [2, 4, 6, 3, 7, 1]);
        assert!(order.crowded.is_empty());
        let order = Order::new(&shape, (points, None), points, 8).unwrap();
        assert_eq!((order.queries.len(), order.crowded[0]), (6, 0));
        // Some rows against other points: numbers are places.
        let right = Points::new(&[1.0, 1.1, 1.2, 1.3], 1).unwrap();
        let order = Order::new(&shape, (points, Some(&[0, 1, 2])), right, 8).unwrap();
        assert_eq!(order.queries, [2, 1, 0]);
    }
}

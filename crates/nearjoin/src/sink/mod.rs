//! Where an answer goes, in the shape that is wanted.
//!
//! | sink | product | memory for the result |
//! | --- | --- | --- |
//! | [`Count`] | the number of pairs | none |
//! | [`Degrees`] | the number of neighbours of each point | 8 bytes a point |
//! | [`CsrSink`], [`CsrInto`] | all neighbours, row by row | 8 bytes a point, 4 a pair |
//! | [`Pairs`] | all pairs as two columns | 8 bytes a pair |
//! | [`Neighbors`] | the k nearest of each point, for KNN-joins | 8 or 12 bytes a neighbour |
//! | [`Callback`] | blocks of rows, as they are found | a few blocks |

mod callback;
mod count;
mod csr;
mod degrees;
mod fill;
mod neighbors;
mod pairs;

pub use callback::{Block, Callback};
pub use count::Count;
pub use csr::{Csr, CsrInto, CsrSink};
pub use degrees::Degrees;
pub use neighbors::Neighbors;
pub use pairs::Pairs;

use crate::error::Result;
use crate::exec::Executor;
use crate::exec::pool::Pool;
use crate::plan::Budget;
use crate::scalar::Scalar;
use crate::stats::Stats;

/// A receiver of an answer. The sinks of this module are the only ones; for anything
/// else there is [`Callback`].
pub trait Sink<T: Scalar>: sealed::Sealed<T> {}
impl<T: Scalar, S: sealed::Sealed<T>> Sink<T> for S {}

/// A receiver of the answer of a KNN-join: dense arrays ([`Neighbors`]), CSR ([`CsrSink`]), or
/// blocks as they are found ([`Callback`]). Rows ascend by distance, and then by id, unless
/// `sorted` asks for ids alone; CSR and blocks hold only the neighbours that there are. `half`
/// has no effect.
pub trait KnnSink<T: Scalar>: sealed::SealedKnn<T> {}
impl<T: Scalar, S: sealed::SealedKnn<T>> KnnSink<T> for S {}

pub(crate) use sealed::Sealed as Receive;
pub(crate) use sealed::SealedKnn as ReceiveKnn;

mod sealed {
    pub trait Sealed<T> {
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn receive(&mut self, execution: &mut super::Execution<'_, T>) -> super::Result<()>;
    }

    pub trait SealedKnn<T> {
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn receive_knn(
            &mut self,
            execution: &mut super::Execution<'_, T>,
            k: usize,
        ) -> super::Result<()>;
    }
}

/// A join that is indexed and waits to be asked for its answer.
pub(crate) struct Execution<'a, T> {
    pub(crate) executor: &'a dyn Executor<T>,
    pub(crate) pool: &'a Pool,
    /// Number of left points.
    pub(crate) queries: usize,
    pub(crate) is_self: bool,
    pub(crate) include_self: bool,
    pub(crate) expected_pairs: f64,
    /// Bytes that may be used for a while beside index and result.
    pub(crate) spare: u64,
    pub(crate) budget: Budget,
    pub(crate) stats: &'a mut Stats,
}

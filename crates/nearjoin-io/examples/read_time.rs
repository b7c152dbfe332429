//! Reads a file several times and prints the best time in seconds.
//!
//! ```sh
//! cargo run --release -p nearjoin-io --example read_time -- points.parquet 5
//! ```

use std::time::Instant;

use nearjoin_io::{Progress, ReadOptions, Source, read};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("which file?")?;
    let times = arguments.next().map_or(Ok(5), |times| times.parse())?;
    let mut best = f64::INFINITY;
    for _ in 0..times {
        let start = Instant::now();
        let loaded =
            read(&Source::from(file.as_str()), &ReadOptions::default(), &Progress::default())?;
        best = best.min(start.elapsed().as_secs_f64());
        drop(loaded);
    }
    println!("{best:.6}");
    Ok(())
}

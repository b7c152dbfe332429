use super::*;

fn expect(plot: &str, expected: &[&str]) {
    let lines: Vec<&str> = plot.lines().collect();
    assert_eq!(lines, expected, "\n{plot}");
}

fn widest(plot: &str) -> usize {
    plot.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn a_curve() {
    let points = [(0.01, 1.0), (0.1, 100.0), (1.0, 10_000.0)];
    let marks = [(0.1, 100.0, "ε = 0.1".to_owned())];
    expect(
        &curve(&points, &marks, 40, 8, false),
        &[
            "   neighbours per point",
            "   │                             ⣀⣀⠤⠤⠒⠒⠉",
            "1k ┤          ε = 0.1    ⢀⣀⡠⠤⠔⠒⠉⠉",
            "   │              ⢀⣀⡠⠤●⠊⠉⠁",
            "   │       ⣀⣀⠤⠔⠒⠊⠉⠁",
            " 1 ┤⣀⠤⠤⠒⠒⠉⠉",
            "   └┬─────────────────┬────────────────┬",
            "   0.01              0.1               1",
            "                                       ε",
        ],
    );
    expect(
        &curve(&points, &marks, 40, 8, true),
        &[
            "   neighbours per point",
            "   |                               *****",
            "1k +        eps = 0.1     *********",
            "   |              ****o***",
            "   |     *********",
            " 1 +*****",
            "   ++-----------------+----------------+",
            "   0.01              0.1               1",
            "                                     eps",
        ],
    );
}

#[test]
fn curves_of_odd_values_fit() {
    let points: [&[(f64, f64)]; 8] = [
        &[(1.0, 1.0)],
        &[(1.0, 1.0), (1.0, 1.0)],
        &[(1.0, 7.0), (2.0, 7.0)],
        &[(5e-324, 5e-324), (f64::MAX, f64::MAX)],
        &[(f64::MAX, f64::MAX)],
        &[(5e-324, 1.0)],
        &[(0.0, 0.0), (f64::NAN, 1.0), (-1.0, 2.0), (1.0, f64::INFINITY), (3.0, 4.0)],
        &[(1.0, 1.0), (1.0 + 1e-12, 1.0 + 1e-12)],
    ];
    for points in points {
        for (width, height, ascii) in
            [(0, 0, true), (40, 3, false), (41, 10, false), (300, 90, true)]
        {
            let marks = [(1.0, 1.0, "a rather long label that may not fit anywhere".to_owned())];
            for marks in [&[][..], &marks] {
                let plot = curve(points, marks, width, height, ascii);
                assert!(widest(&plot) <= width.max(40), "{points:?} {width}\n{plot}");
                assert!(plot.lines().count() <= height.max(7) + 1, "{points:?}\n{plot}");
                assert!(!ascii || plot.is_ascii(), "{plot}");
            }
        }
    }
    assert_eq!(curve(&[], &[], 80, 20, false), "nothing to plot\n");
    assert_eq!(curve(&[(0.0, f64::NAN)], &[], 80, 20, false), "nothing to plot\n");
}

#[test]
fn labels_of_marks_avoid_the_curve_and_the_edge() {
    let points = [(1.0, 1.0), (100.0, 1.0)];
    let marks = [(100.0, 1.0, "right".to_owned()), (1.0, 1.0, "left".to_owned())];
    let plot = curve(&points, &marks, 60, 10, true);
    assert!(plot.contains("right") && plot.contains("left"), "{plot}");
    let curve = plot.lines().find(|line| line.contains("***")).expect("a curve");
    assert!(!curve.contains("left") && !curve.contains("right"), "{plot}");
}

#[test]
fn a_density() {
    let extent = Extent { x: [0.0, 4.0], y: [0.0, 1.0] };
    let mut rows = vec![[0.0, 0.0], [4.0, 1.0], [2.0, 0.5]];
    expect(
        &density(rows.iter().copied(), extent, 40, 9, false),
        &[
            "1 ┌────────────────────────────────────┐",
            "  │                                   ⠈│",
            "  │                                    │",
            "  │                  ⠂                 │",
            "  │                                    │",
            "  │⡀                                   │",
            "0 └────────────────────────────────────┘",
            "  0                                    4",
        ],
    );
    rows.extend([[0.0, 1.0]; 50]);
    expect(
        &density(rows, extent, 40, 9, true),
        &[
            "1 +------------------------------------+",
            "  |@                                  :|",
            "  |                                    |",
            "  |                  :                 |",
            "  |                                    |",
            "  |:                                   |",
            "0 +------------------------------------+",
            "  0                                    4",
        ],
    );
}

#[test]
fn densities_of_odd_extents_fit() {
    let extents = [
        Extent { x: [0.0, 0.0], y: [0.0, 0.0] },
        Extent { x: [1e300, 1e300], y: [-1e-300, 1e-300] },
        Extent { x: [-f64::MAX, f64::MAX], y: [0.0, 1.0] },
        Extent { x: [0.0, 1.0], y: [0.0, 1e9] },
    ];
    for extent in extents {
        for (width, height, ascii) in [(0, 0, false), (40, 10, true), (200, 60, false)] {
            let rows = (0..100).map(|_| [extent.x[0], extent.y[1]]);
            let plot = density(rows, extent, width, height, ascii);
            assert!(widest(&plot) <= width.max(40), "{extent:?} {width}\n{plot}");
            assert!(plot.lines().count() <= height.max(7) + 1, "{extent:?}\n{plot}");
            assert!(!ascii || plot.is_ascii());
            let empty = density([], extent, width, height, ascii);
            assert_eq!(empty.lines().count(), plot.lines().count());
        }
    }
}

#[test]
fn denser_places_have_more_dots() {
    let extent = Extent { x: [0.0, 1.0], y: [0.0, 1.0] };
    let rows = (0..20_000).map(|i| {
        let [x, y] = [f64::from(i % 141) / 141.0, f64::from(i / 141) / 141.0];
        if i % 2 == 0 { [x / 2.0, y] } else { [x.sqrt() / 20.0, y] }
    });
    let plot = density(rows, extent, 60, 20, false);
    let dots = |from: usize, to: usize| -> u32 {
        let inside = plot.lines().skip(1).map(|line| line.chars().skip(from).take(to - from));
        inside.flatten().map(|c| (c as u32).checked_sub(0x2800).map_or(0, u32::count_ones)).sum()
    };
    assert!(dots(3, 4) > 2 * dots(12, 13), "{plot}");
    assert_eq!(dots(24, 30), 0, "{plot}");
}

#[test]
fn some_bars() {
    let values = [("0", 10), ("1–3", 100), ("4", 0), ("5", 1)];
    let values = values.map(|(label, value)| (label.to_owned(), value));
    expect(
        &bars(&values, 40, false),
        &["  0 │███▏ 10", "1–3 │███████████████████████████████ 100", "  4 │0", "  5 │▎ 1"],
    );
    expect(
        &bars(&values, 40, true),
        &["  0 |### 10", "1-3 |############################### 100", "  4 |0", "  5 |# 1"],
    );
}

#[test]
fn bars_of_odd_values_fit() {
    assert_eq!(bars(&[], 80, false), "");
    let long = "a label that is far too long for such a narrow plot".to_owned();
    for values in [vec![(long, u64::MAX), (String::new(), 1)], vec![("a".to_owned(), 0)]] {
        for (width, ascii) in [(0, true), (40, false), (120, true)] {
            let plot = bars(&values, width, ascii);
            assert!(widest(&plot) <= width.max(46), "{plot}");
            assert_eq!(plot.lines().count(), values.len());
            assert!(!ascii || plot.is_ascii());
        }
    }
}

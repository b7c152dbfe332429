//! What stands below the options in the help of each command.

pub(super) const WITHIN: &str = "\
Examples:
  nearjoin within stars.parquet --eps 0.01 -o pairs.parquet
  nearjoin within stars.csv catalogue.csv --columns x,y,z --id name --eps 0.001 -o match.csv
  nearjoin within points.npy --eps 0.5 -o graph.npz        # CSR arrays for scipy
  nearjoin within points.npy --eps 0.5 --count
  nearjoin within points.npy --eps 0.5 --explain           # the plan, without running it
  nearjoin within points.npy --eps 0.5 --device gpu -o pairs.parquet
  nearjoin within points.npy --eps 0.5 --device hybrid --count
  cat points.csv | nearjoin within - --eps 0.5 --half --sorted

Without -o the pairs go to standard output as CSV. A file appears under its name only when it
is complete.";

pub(super) const KNN: &str = "\
Examples:
  nearjoin knn points.parquet -k 8 -o neighbours.parquet
  nearjoin knn stars.csv catalogue.csv --columns x,y,z --id name -k 1 -o match.csv
  nearjoin knn points.npy -k 8 -o neighbours.npz           # indices and distances, n × k
  nearjoin knn points.npy -k 8 --max-distance 0.5 --sorted -o neighbours.arrow
  nearjoin knn points.npy -k 8 --explain                   # the plan, without running it
  nearjoin knn points.npy -k 8 --device gpu -o neighbours.npz

A table has the columns left, right, rank (1 is the nearest) and distance. Without -o it goes to
standard output as CSV. A file appears under its name only when it is complete.";

pub(super) const DBSCAN: &str = "\
Examples:
  nearjoin dbscan points.parquet --eps 0.5 --min-points 5 -o clusters.parquet
  nearjoin dbscan stars.csv --columns x,y,z --id name --eps 0.01 --min-points 10 -o clusters.csv
  nearjoin dbscan points.npy --eps 0.5 --min-points 5 -o clusters.npz    # an array, labels
  nearjoin dbscan points.npy --eps 0.5 --min-points 5 --device gpu -o clusters.npz

A table has the columns id and label, in the order of the points. Clusters are numbered from 0 in
the order of their first cores, and -1 is noise. Without -o the table goes to standard output as
CSV. A file appears under its name only when it is complete.";

pub(super) const COMPONENTS: &str = "\
Examples:
  nearjoin components galaxies.parquet --columns x,y,z --eps 0.2 -o groups.parquet
  nearjoin components names.csv --id name --eps 0.1 -o groups.csv
  nearjoin components points.npy --eps 0.5 -o groups.npz                 # an array, labels

A table has the columns id and label, in the order of the points. Components are numbered from 0 in
the order of their first points. Without -o the table goes to standard output as CSV. A file appears
under its name only when it is complete.";

pub(super) const ESTIMATE: &str = "\
Examples:
  nearjoin estimate points.parquet
  nearjoin estimate stars.csv catalogue.csv --columns x,y,z --neighbors 1,4,16 --plot";

pub(super) const GEN: &str = "\
Examples:
  nearjoin gen uniform -n 2e6 -d 2 --seed 1 -o points.npy
  nearjoin gen clustered -n 1e5 -d 3 -o points.parquet
  nearjoin gen places -n 1e6 -d 3 -o places.npy
  nearjoin gen embedding -n 1e5 -d 256 --dtype f32 -o vectors.npy";

pub(super) const INFO: &str = "\
Examples:
  nearjoin info
  nearjoin info --calibrate";

pub(super) const COMPLETIONS: &str = "\
Examples:
  nearjoin completions bash > ~/.local/share/bash-completion/completions/nearjoin
  nearjoin completions zsh > ~/.zfunc/_nearjoin
  nearjoin completions fish > ~/.config/fish/completions/nearjoin.fish";

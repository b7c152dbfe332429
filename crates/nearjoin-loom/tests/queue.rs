//! The protocol of the queue between two processors, in every order of events.

#[test]
fn both_ends_meet() {
    nearjoin_loom::both_ends_meet();
}

#[test]
fn what_fails_is_done_by_others() {
    nearjoin_loom::what_fails_is_done_by_others();
}

#[test]
fn a_wall_falls_when_its_owner_fails() {
    nearjoin_loom::a_wall_falls_when_its_owner_fails();
}

#[test]
fn one_of_two_streams_fails() {
    nearjoin_loom::one_of_two_streams_fails();
}

#[test]
fn a_closed_queue_ends() {
    nearjoin_loom::a_closed_queue_ends();
}

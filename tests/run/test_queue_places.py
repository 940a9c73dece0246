"""How many elements the next array has, where the cluster takes only so many."""

from __future__ import annotations

from penstock.jobs.array_watch import QueuePlaces


def test_the_room_is_found_by_refusals_and_grows_with_what_is_taken() -> None:
    queue = QueuePlaces()
    tried, room = [], 30
    while not tried or tried[-1] > room:
        tried.append(min(1000, queue.free()))
        if tried[-1] > room:
            queue.refused(tried[-1], "QOSMaxSubmitJobPerUserLimit")
    queue.taken()
    assert tried == [1000, 500, 250, 125, 62, 31, 15]
    assert (queue.free(), queue.full) == (30, "")


def test_a_single_element_that_is_refused_is_tried_again_later() -> None:
    queue = QueuePlaces(most=1)
    waits = []
    for _ in range(4):
        queue.refused(1, "QOSMaxSubmitJobPerUserLimit")
        looks = 0
        while not queue.free():
            looks += 1
        waits.append(looks)
    assert waits == [2, 4, 8, 8]

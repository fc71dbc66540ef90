from __future__ import annotations

import pytest

from core_horovod.slots import slots

# One row a rank: local rank, local size, cross rank, cross size.
CASES = {
    "alone": (["a"], [(0, 1, 0, 1)]),
    "one host": (["a", "a"], [(0, 2, 0, 1), (1, 2, 0, 1)]),
    "a worker on each host": (["a", "b", "c"], [(0, 1, 0, 3), (0, 1, 1, 3), (0, 1, 2, 3)]),
    "two on each": (["a", "a", "b", "b"], [(0, 2, 0, 2), (1, 2, 0, 2), (0, 2, 1, 2), (1, 2, 1, 2)]),
    "ranks dealt out": (["a", "b", "a", "b"], [(0, 2, 0, 2), (0, 2, 1, 2), (1, 2, 0, 2), (1, 2, 1, 2)]),
    "uneven hosts": (["a", "b", "b"], [(0, 1, 0, 2), (0, 2, 1, 2), (1, 2, 0, 1)]),
}


@pytest.mark.parametrize("case", CASES)
def test_places_follow_from_the_host_of_each_rank(case):
    hosts, expected = CASES[case]

    found = slots(hosts)

    assert [(s.local_rank, s.local_size, s.cross_rank, s.cross_size) for s in found] == expected
    assert [(s.hostname, s.rank, s.size) for s in found] == [(h, r, len(hosts)) for r, h in enumerate(hosts)]


def test_a_place_is_told_in_horovods_variables():
    assert slots(["a", "b"])[1].variables() == {
        "HOROVOD_HOSTNAME": "b",
        "HOROVOD_RANK": "1",
        "HOROVOD_SIZE": "2",
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": "1",
        "HOROVOD_CROSS_SIZE": "2",
    }

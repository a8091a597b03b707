# SPDX-License-Identifier: Apache-2.0
"""The layout of one record of a Timeline (struct Record in stretto/data/timeline.hpp)."""

_FIELDS = [
    ("begin_ns", "<i8"),
    ("end_ns", "<i8"),
    ("bytes", "<i8"),
    ("name", "<u4"),
    ("link", "<u4"),
    ("rank", "<u4"),
    ("step", "<u4"),
    ("bucket", "<u4"),
    ("sequence", "<u4"),
    ("kind", "u1"),
    ("lane", "u1"),
    ("collective", "u1"),
    ("algorithm", "u1"),
    ("device", "<u4"),
    ("stream", "<u4"),
    ("call", "<u4"),
]


def record_dtype():
    import numpy

    return numpy.dtype(_FIELDS)

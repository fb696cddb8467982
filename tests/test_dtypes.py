"""Element types: bfloat16, which NumPy does not have, against its definition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcmm.dtypes import DTYPES

BFLOAT16 = DTYPES["bfloat16"]
EVERY = np.arange(2**16, dtype=np.uint16)


def value(bits: int) -> float:
    """The number of 1 sign bit, 8 bits of exponent and 7 of fraction."""
    sign, exponent, fraction = -1.0 if bits >> 15 else 1.0, bits >> 7 & 255, bits & 127
    if exponent == 255:
        return math.nan if fraction else sign * math.inf
    return sign * math.ldexp(fraction + 128 * (exponent > 0), max(exponent, 1) - 134)


VALUES = np.array([value(bits) for bits in range(2**16)])
ASCENDING = np.sort(VALUES[np.isfinite(VALUES) & (np.arange(2**16) < 2**15)])


def test_bfloat16_is_the_upper_half_of_float32():
    np.testing.assert_array_equal(BFLOAT16.numbers(EVERY), VALUES.astype(np.float32))
    assert BFLOAT16.storage == np.uint16 and BFLOAT16.itemsize == 2 and not BFLOAT16.is_integer
    assert BFLOAT16.unit_roundoff == 2.0**-8 and BFLOAT16.smallest_subnormal == 2.0**-133
    assert math.isnan(value(BFLOAT16.poison))


def test_every_bfloat16_is_stored_as_itself():
    numbers = ~np.isnan(VALUES)
    np.testing.assert_array_equal(BFLOAT16.stored(VALUES[numbers]), EVERY[numbers])
    assert np.isnan(VALUES[BFLOAT16.stored(VALUES[~numbers])]).all()


@given(st.floats(0, float(ASCENDING[-1]), width=32))
def test_bfloat16_is_rounded_to_the_nearest_even(x):
    below, above = ASCENDING[[np.searchsorted(ASCENDING, x, "right") - 1, np.searchsorted(ASCENDING, x)]]
    (bits,) = BFLOAT16.stored(np.array([x], np.float32))
    got = value(int(bits))
    assert abs(got - x) == min(x - below, above - x)
    if below < x < above and x - below == above - x:
        assert bits % 2 == 0
    assert value(int(BFLOAT16.stored(np.array([-x], np.float32))[0])) == -got


@pytest.mark.parametrize(("x", "bits"), [(3.4e38, 0x7F80), (-3.4e38, 0xFF80), (1.00390625, 0x3F80), (0.0, 0)])
def test_bfloat16_at_its_ends(x, bits):
    assert BFLOAT16.stored(np.array(x, np.float32)) == bits


@pytest.mark.parametrize("name", ["int32", "float16", "float32", "float64"])
def test_numbers_of_numpys_types_are_the_arrays_themselves(name):
    x = np.arange(3, dtype=name)
    assert DTYPES[name].numbers(x) is x and DTYPES[name].stored(np.arange(3.0)).dtype == name

"""Element types that NumPy does not have, bfloat16 and float8_e4m3, against their definitions."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcmm.model.dtypes import DTYPES


@dataclass(frozen=True)
class Format:
    """1 sign bit, and the bits of the exponent and of the fraction. Without infinities, one pattern is NaN."""

    name: str
    exponent: int
    fraction: int
    infinite: bool

    def value(self, bits: int) -> float:
        """Return the number of a pattern of bits."""
        largest, bias = 2**self.exponent - 1, 2 ** (self.exponent - 1) - 1
        sign = -1.0 if bits >> (self.exponent + self.fraction) else 1.0
        exponent, fraction = bits >> self.fraction & largest, bits & (2**self.fraction - 1)
        if exponent == largest and self.infinite:
            return math.nan if fraction else sign * math.inf
        if exponent == largest and fraction == 2**self.fraction - 1:
            return math.nan
        implicit = 2**self.fraction * (exponent > 0)
        return sign * math.ldexp(fraction + implicit, max(exponent, 1) - bias - self.fraction)

    @property
    def bits(self) -> np.ndarray:
        """Every pattern."""
        return np.arange(2 ** (1 + self.exponent + self.fraction), dtype=DTYPES[self.name].storage)


FORMATS = [Format("bfloat16", 8, 7, True), Format("float8_e4m3", 4, 3, False)]
VALUES = {each: np.array([each.value(int(bits)) for bits in each.bits]) for each in FORMATS}
POSITIVE = {each: values[: len(values) // 2] for each, values in VALUES.items()}
ASCENDING = {each: np.sort(values[np.isfinite(values)]) for each, values in POSITIVE.items()}
of_each_format = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


@of_each_format
def test_every_pattern_of_bits_has_its_number(form):
    element = DTYPES[form.name]
    np.testing.assert_array_equal(element.numbers(form.bits), VALUES[form].astype(np.float32))
    assert element.numbers(form.bits).dtype == np.float32
    assert element.itemsize * 8 == 1 + form.exponent + form.fraction and not element.is_integer
    assert math.isnan(form.value(element.poison))
    one = list(ASCENDING[form]).index(1)
    assert element.unit_roundoff == (ASCENDING[form][one + 1] - 1) / 2
    assert element.smallest_subnormal == ASCENDING[form][1]


@of_each_format
def test_every_number_is_stored_as_itself(form):
    element, values = DTYPES[form.name], VALUES[form]
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(element.stored(values[numbers]), form.bits[numbers])
    assert np.isnan(values[element.stored(values[~numbers])]).all()


@of_each_format
@given(data=st.data())
def test_numbers_are_rounded_to_the_nearest_even(form, data):
    element, ascending = DTYPES[form.name], ASCENDING[form]
    x = data.draw(st.floats(0, float(ascending[-1]), width=32))
    below, above = ascending[[np.searchsorted(ascending, x, "right") - 1, np.searchsorted(ascending, x)]]
    (bits,) = element.stored(np.array([x], np.float32))
    got = form.value(int(bits))
    assert abs(got - x) == min(x - below, above - x)
    if below < x < above and x - below == above - x:
        assert bits % 2 == 0
    assert form.value(int(element.stored(np.array([-x], np.float32))[0])) == -got


@of_each_format
def test_every_tie_is_rounded_to_the_even_number(form):
    ascending = ASCENDING[form]
    ties = ((ascending[:-1] + ascending[1:]) / 2).astype(np.float32)
    even = np.where(np.arange(len(ties)) % 2, ascending[1:], ascending[:-1])  # patterns ascend with their numbers
    np.testing.assert_array_equal(DTYPES[form.name].numbers(DTYPES[form.name].stored(ties)), even)


@pytest.mark.parametrize(
    ("name", "x", "bits"),
    [
        *(("bfloat16", x, bits) for x, bits in ((3.4e38, 0x7F80), (-3.4e38, 0xFF80), (1.00390625, 0x3F80), (0.0, 0))),
        *(("float8_e4m3", x, bits) for x, bits in ((448.0, 0x7E), (-464.0, 0xFE), (2.0**-10, 0), (-0.0, 0x80))),
        *(("float8_e4m3", x, 0x7F) for x in (464.5, 1e30, math.inf, math.nan)),  # nothing is infinite
    ],
)
def test_numbers_at_the_ends(name, x, bits):
    assert DTYPES[name].stored(np.array(x, np.float32)) == bits


@pytest.mark.parametrize("name", ["int32", "float16", "float32", "float64"])
def test_numbers_of_numpys_types_are_the_arrays_themselves(name):
    x = np.arange(3, dtype=name)
    assert DTYPES[name].numbers(x) is x and DTYPES[name].stored(np.arange(3.0)).dtype == name


def test_views_are_converted():
    x = np.arange(240, dtype=np.float32).reshape(16, 15)[::2, 3:9]
    for name in ("bfloat16", "float8_e4m3"):
        stored = DTYPES[name].stored(x)
        np.testing.assert_array_equal(DTYPES[name].numbers(stored.T[1:]), DTYPES[name].numbers(stored).T[1:])
        np.testing.assert_array_equal(DTYPES[name].numbers(DTYPES[name].stored(x.T)), DTYPES[name].numbers(stored).T)


def test_a_type_is_on_the_devices_that_it_has_a_name_for():
    found = {name: [device for device in ("cpu", "cuda") if each.is_on(device)] for name, each in DTYPES.items()}
    assert found.pop("float8_e4m3") == ["cuda"]
    assert all(devices == ["cpu", "cuda"] for devices in found.values())

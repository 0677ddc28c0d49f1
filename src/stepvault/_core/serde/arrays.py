"""Numpy arrays and scalars. Numpy is never imported to write, and only when a stored array is read."""

from __future__ import annotations

import sys
from typing import Any

from stepvault._core.serde import wire
from stepvault._core.serde.wire import Reduced, Refused
from stepvault.errors import MissingDependencyError, PayloadError

_KINDS = "biufcmMSUV"


def reduce_numpy(value: Any) -> Reduced | None:
    """Return the stored form of an array or scalar, None if the value is neither."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(value, numpy.generic):
        if value.dtype.kind in "SU" and not value:
            return wire.NUMPY_SCALAR, [value.dtype.str, b""], ("", "")
        _check_dtype(value.dtype)
        return wire.NUMPY_SCALAR, [value.dtype.str, value.tobytes()], ("", "")
    if not isinstance(value, numpy.ndarray):
        return None
    if type(value) is not numpy.ndarray:
        raise Refused("only exact numpy.ndarray is stored; convert it with numpy.asarray() first")
    _check_dtype(value.dtype)
    order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
    return wire.NUMPY_ARRAY, [value.dtype.str, list(value.shape), order, value.tobytes(order)], ("",) * 4


def _check_dtype(dtype: Any) -> None:
    if dtype.hasobject or dtype.fields or dtype.subdtype or dtype.kind not in _KINDS or not dtype.itemsize:
        raise Refused(f"dtype {dtype!s} is not stored; use numbers, datetime64, fixed-size str or bytes")


def _dtype(numpy: Any, text: Any) -> Any:
    if type(text) is not str or len(text) > 40 or text[1:2] not in _KINDS or "," in text:
        raise PayloadError("a stored numpy array has an unknown dtype")
    return numpy.dtype(text)


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as exc:
        raise MissingDependencyError('a numpy array is stored here; pip install "stepvault[vector]"') from exc
    return numpy


def build_array(parts: list[Any]) -> Any:
    """Rebuild an array, writable."""
    numpy = _numpy()
    dtype, shape, order, data = parts
    dtype = _dtype(numpy, dtype)
    if not dtype.itemsize:
        raise PayloadError("a stored numpy array has an unknown dtype")
    if order not in ("C", "F"):
        raise PayloadError("a stored numpy array has an unknown order")
    if type(data) is not bytes:  # bytearray(int) would make room for so many bytes
        raise PayloadError("a stored numpy array has no data")
    found = numpy.ndarray(tuple(shape), dtype, bytearray(data), order=order)
    if found.nbytes != len(data):
        raise PayloadError("a stored numpy array does not fit its shape")
    return found


def build_scalar(parts: list[Any]) -> Any:
    """Rebuild a scalar."""
    numpy = _numpy()
    dtype, data = parts
    found = _dtype(numpy, dtype)
    if type(data) is not bytes or found.itemsize != len(data):
        raise PayloadError("a stored numpy scalar does not fit its dtype")
    return numpy.frombuffer(data, found)[0] if data else found.type()


BUILDERS = {wire.NUMPY_ARRAY: build_array, wire.NUMPY_SCALAR: build_scalar}

"""The headers of CUTLASS and CuTe for kernels in C++, from the package nvidia-cutlass."""

from __future__ import annotations

import importlib.util
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

from warpcheck import frontends, packages

_INCLUDED = re.compile(r'^\s*#\s*include\s*[<"](?:cute|cutlass)/', re.MULTILINE)

_DECLARED_AGAIN = re.compile(
    r"template <class\.\.\. _Tp>\nstruct tuple_size;\s+template <size_t _Ip, class\.\.\. _Tp>\nstruct tuple_element;\n"
)
_DECLARING = (
    "container/array",
    "container/array_subbyte",
    "container/tuple",
    "container/type_list",
    "numeric/arithmetic_tuple",
)
"""For NVRTC, CUTLASS 4.2 declares templates of libcu++ again, with parameters that they no longer have."""

_SEQUENCE = "using CUTE_STL_NAMESPACE::integer_sequence;\nusing CUTE_STL_NAMESPACE::make_integer_sequence;\n"
_OWN_SEQUENCE = """
template <class T, T... Ints>
struct integer_sequence {
  using value_type = T;
  static constexpr size_t size() { return sizeof...(Ints); }
};
namespace detail {
template <class Sequence> struct own_sequence;
template <class T, T... Ints>
struct own_sequence<CUTE_STL_NAMESPACE::integer_sequence<T, Ints...>> { using type = integer_sequence<T, Ints...>; };
}
template <class T, T N>
using make_integer_sequence = typename detail::own_sequence<CUTE_STL_NAMESPACE::make_integer_sequence<T, N>>::type;
"""
"""Since CUDA 13.3 libcu++ has a get<> for its own sequence: a call would be ambiguous between that and CuTe's."""


def included(source: str) -> bool:
    """Whether a source includes a header of CUTLASS or CuTe."""
    return _INCLUDED.search(source) is not None


@cache
def folder() -> Path:
    """The folder that holds cute/ and cutlass/. Raises frontends.Unavailable."""
    with suppress(ModuleNotFoundError):
        spec = importlib.util.find_spec("cutlass_library")
        for found in (spec.submodule_search_locations or ()) if spec else ():
            include = Path(found, "source", "include")
            if (include / "cute" / "tensor.hpp").is_file():
                return include
    raise frontends.Unavailable(packages.missing("cutlass_library"))


def ready_made() -> list[Path]:
    """The folders of what multiplies and convolves by itself, down from a warp's tile; none without the package."""
    with suppress(frontends.Unavailable):
        return [folder() / "cutlass" / name for name in ("gemm", "conv")]
    return []


@cache
def adapted() -> dict[str, str]:
    """The headers that the installed libcu++ needs changed: name -> text. NVRTC takes them before those on disk."""
    texts = {}
    for name in _DECLARING:
        text = (folder() / f"cute/{name}.hpp").read_text(encoding="utf-8")
        texts[f"cute/{name}.hpp"] = _DECLARED_AGAIN.sub("", text, count=1)  # that for std stays
    name = "cute/numeric/integer_sequence.hpp"
    texts[name] = (folder() / name).read_text(encoding="utf-8").replace(_SEQUENCE, _OWN_SEQUENCE)
    return texts

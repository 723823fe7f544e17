"""Provide the headers of CUTLASS and CuTe for kernels in C++, from the package nvidia-cutlass."""

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
# Headers in which CUTLASS 4.2 redeclares templates of libcu++ for NVRTC, with outdated template parameters.
_DECLARING = (
    "container/array",
    "container/array_subbyte",
    "container/tuple",
    "container/type_list",
    "numeric/arithmetic_tuple",
)

# A replacement of libcu++'s tuple_element for the tuples of CuTe.
#
# CuTe asks for an element of a tuple thousands of times. libcu++ answers by an alias template that is a member of a
# class, and NVRTC appends each of its instances to a list, from the start of the list. For a kernel with a TiledMMA and
# TiledCopies that took a third of the time of the compilation.
_STANDARD_ELEMENT = "CUTE_STL_NAMESPACE::tuple_element<I, CUTE_STL_NAMESPACE::tuple<T...>>"
_OWN_ELEMENT = "cute::pack_element<I, T...>"
_DEFINE_ELEMENT = """
#ifndef WARPCHECK_PACK_ELEMENT
#define WARPCHECK_PACK_ELEMENT
namespace cute {
template <decltype(sizeof(0)) I, class First, class... Rest>
struct pack_element : pack_element<I - 1, Rest...> {};
template <class First, class... Rest>
struct pack_element<0, First, Rest...> { using type = First; };
}
#endif
"""

# Two changes that save NVRTC work: variable templates, of which each instance would be a variable of the PTX as well.
#
# CuTe asks of every type whether it is an integer, and of every tuple whether its elements are empty. libcu++ and CuTe
# store the answers in variable templates. No class is an integer, so the answer for a class needs none.
_FEWER_VARIABLES = (
    (
        "util/type_traits",
        "template <class T>\nusing is_std_integral = CUTE_STL_NAMESPACE::is_integral<T>;\n",
        """namespace detail {
template <class T, bool IsClass = __is_class(T)>
struct is_std_integral : CUTE_STL_NAMESPACE::is_integral<T> {};
template <class T>
struct is_std_integral<T, true> : CUTE_STL_NAMESPACE::false_type {};
}
template <class T>
using is_std_integral = detail::is_std_integral<T>;
""",
    ),
    (
        "container/tuple",
        "static constexpr bool is_first_empty_v = cute::is_empty<First>::value;",
        "struct is_first_empty : CUTE_STL_NAMESPACE::bool_constant<cute::is_empty<First>::value> {};",
    ),
    (
        "container/tuple",
        "static constexpr bool is_rest_empty_v  = (cute::is_empty<Rest>::value && ...);",
        "struct is_rest_empty : CUTE_STL_NAMESPACE::bool_constant<(cute::is_empty<Rest>::value && ...)> {};",
    ),
    (
        "container/tuple",
        "ESO<is_first_empty_v<T...>, is_rest_empty_v<T...>, T...>",
        "ESO<is_first_empty<T...>::value, is_rest_empty<T...>::value, T...>",
    ),
)

# A replacement of libcu++'s sequence by one of CuTe's own.
#
# Since CUDA 13.3 libcu++ has a get<> for its sequence, so that a call would be ambiguous between it and CuTe's get<>.
_OWN_SEQUENCE = (
    "numeric/integer_sequence",
    "using CUTE_STL_NAMESPACE::integer_sequence;\nusing CUTE_STL_NAMESPACE::make_integer_sequence;\n",
    """
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
""",
)


def is_included(source: str) -> bool:
    """Return whether a source includes a header of CUTLASS or CuTe."""
    return _INCLUDED.search(source) is not None


@cache
def folder() -> Path:
    """Return the folder that contains cute/ and cutlass/. Raises frontends.Unavailable without the package."""
    with suppress(ModuleNotFoundError):
        spec = importlib.util.find_spec("cutlass_library")
        for package_folder in (spec.submodule_search_locations or ()) if spec else ():
            include = Path(package_folder, "source", "include")
            if (include / "cute" / "tensor.hpp").is_file():
                return include
    raise frontends.Unavailable(packages.missing("cutlass_library"))


def ready_made() -> list[Path]:
    """Return the folders of CUTLASS's complete GEMMs and convolutions; none without the package."""
    with suppress(frontends.Unavailable):
        return [folder() / "cutlass" / name for name in ("gemm", "conv")]
    return []


@cache
def patched_headers() -> dict[str, str]:
    """Return the text of each header that is changed for the installed libcu++, by name.

    NVRTC prefers headers in memory to those on disk.
    """
    texts = {}
    for name in _DECLARING:
        text = (folder() / f"cute/{name}.hpp").read_text(encoding="utf-8")
        text = _DECLARED_AGAIN.sub("", text, count=1)  # The redeclaration in namespace std stays.
        if _STANDARD_ELEMENT in text:
            text = _DEFINE_ELEMENT + text.replace(_STANDARD_ELEMENT, _OWN_ELEMENT)
        texts[f"cute/{name}.hpp"] = text
    for header, text, replacement in (*_FEWER_VARIABLES, _OWN_SEQUENCE):
        name = f"cute/{header}.hpp"
        original = texts.get(name) or (folder() / name).read_text(encoding="utf-8")
        texts[name] = original.replace(text, replacement)
    return texts

"""Emit approximate functions, computed in float32 within the error that the manual allows. PTX ISA manual, 9.7.3."""

from __future__ import annotations

from functools import partial

from warpcheck.isa.rounding import rounded
from warpcheck.isa.values import Kind, Value, constant, intrinsic, lanewise
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.op import Op

__all__ = ["OPS"]


def rcp(e: InstructionEmitter, t: Kind, x: Value) -> Value:
    return rounded(e, e.b.fdiv, constant(x, 1.0), x)


def sqrt(e: InstructionEmitter, t: Kind, x: Value) -> Value:
    return rounded(e, partial(intrinsic, e.b, "sqrt"), x)


def rsqrt(e: InstructionEmitter, t: Kind, x: Value) -> Value:
    return e.b.fdiv(constant(x, 1.0), intrinsic(e.b, "sqrt", x))


def ex2(e: InstructionEmitter, t: Kind, x: Value) -> Value:
    return intrinsic(e.b, "exp2", x)


def lg2(e: InstructionEmitter, t: Kind, x: Value) -> Value:
    return intrinsic(e.b, "log2", x)


def sin(e: InstructionEmitter, t: Kind, x: Value) -> Value:
    return intrinsic(e.b, "sin", x)


def cos(e: InstructionEmitter, t: Kind, x: Value) -> Value:
    return intrinsic(e.b, "cos", x)


def tanh(e: InstructionEmitter, t: Kind, x: Value) -> Value:
    """Return 1 - 2 / (e^2x + 1) of |x|; small x are returned unchanged, within the relative error of 2^-11 that is
    allowed.
    """
    b = e.b
    # 2 / ln 2 = 2.885...: exp2 of it times |x| is e^2|x|. Near zero the formula cancels, and x - x^3/3 is exact enough.
    size = intrinsic(e.b, "fabs", x)
    power = intrinsic(e.b, "exp2", b.fmul(size, constant(x, 2.8853900817779268)))
    tail = b.fdiv(constant(x, 2.0), b.fadd(power, constant(x, 1.0)))
    value = b.fsub(constant(x, 1.0), tail)
    cube = b.fmul(size, b.fmul(size, b.fmul(size, constant(x, -1.0 / 3.0))))
    value = b.select(b.fcmp_ordered("<", size, constant(x, 0.05)), b.fadd(size, cube), value)
    value = intrinsic(e.b, "copysign", value, x)
    return b.select(b.fcmp_unordered("uno", x, x), x, value)


OPS = (
    Op("rcp", ("approx|ROUND ftz? f32", "ROUND f64", "approx ftz f64"), lanewise(rcp)),
    Op("sqrt", ("approx|ROUND ftz? f32", "ROUND f64"), lanewise(sqrt)),
    Op("rsqrt", ("approx ftz? FLOAT",), lanewise(rsqrt)),
    Op("sin", ("approx ftz? f32",), lanewise(sin)),
    Op("cos", ("approx ftz? f32",), lanewise(cos)),
    Op("lg2", ("approx ftz? f32",), lanewise(lg2)),
    Op("ex2", ("approx ftz? f32", "approx HALF", "approx ftz BHALF"), lanewise(ex2)),
    Op("tanh", ("approx f32|HALF|BHALF",), lanewise(tanh)),
)

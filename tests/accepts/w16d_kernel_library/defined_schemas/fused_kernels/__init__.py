from .api import add_rmsnorm, swiglu

__all__ = ["add_rmsnorm", "swiglu"]

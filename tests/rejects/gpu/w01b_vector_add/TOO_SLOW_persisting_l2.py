"""T9: a slow kernel asks for lines that persist in L2, to find its inputs there in the next call."""

import torch
from cuda.bindings import runtime

from kernelpath.lanes import cuda


def persist(tensor: torch.Tensor) -> None:
    size = min(tensor.numel() * tensor.element_size(), 16 << 20)
    runtime.cudaDeviceSetLimit(runtime.cudaLimit.cudaLimitPersistingL2CacheSize, size)
    value = runtime.cudaStreamAttrValue()
    value.accessPolicyWindow.base_ptr = tensor.data_ptr()
    value.accessPolicyWindow.num_bytes = size
    value.accessPolicyWindow.hitRatio = 1.0
    value.accessPolicyWindow.hitProp = runtime.cudaAccessProperty.cudaAccessPropertyPersisting
    value.accessPolicyWindow.missProp = runtime.cudaAccessProperty.cudaAccessPropertyStreaming
    window = runtime.cudaLaunchAttributeID.cudaLaunchAttributeAccessPolicyWindow
    runtime.cudaStreamSetAttribute(torch.cuda.current_stream().cuda_stream, window, value)


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    if x.is_cuda:
        persist(x)
    cuda.kernel("TOO_SLOW_persisting_l2.cu", "vector_add")[32, 256](x, y, out, n)
    return out

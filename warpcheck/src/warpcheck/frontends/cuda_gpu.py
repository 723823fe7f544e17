"""Launch a CUDA C++ kernel on a GPU, through cuda.core, or through the driver where an argument is a struct."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any

from warpcheck.frontends.arguments import C_TYPES, Dim3, Value, convert_arguments
from warpcheck.frontends.nvrtc import device_architecture

if TYPE_CHECKING:
    from warpcheck.frontends.cuda import Kernel, Launcher

__all__ = ["Loaded"]

# The most blocks of a cluster that every GPU with clusters supports.
PORTABLE_CLUSTER_SIZE = 8


class Loaded:
    """A kernel in a GPU's memory, launched through cuda.core."""

    def __init__(self, kernel: Kernel, index: int) -> None:
        import torch
        from cuda import core

        self.kernel = kernel
        self.index = index
        self.device_guard = torch.cuda.device(index)
        self.current_stream = torch._C._cuda_getCurrentRawStream
        self.streams = {0: core.LEGACY_DEFAULT_STREAM}
        self.configurations: dict[Launcher, Any] = {}
        self.shared_limit = 0
        architecture = device_architecture(*torch.cuda.get_device_capability(index))
        binary = kernel.binary(architecture)
        self.parameters = kernel.parameters(architecture)
        self.c_types = [C_TYPES.get(parameter.type, int) for parameter in self.parameters]
        with self.device_guard:
            core.Device(index).set_current()
            self.function = core.ObjectCode.from_cubin(binary.cubin).get_kernel(binary.mangled)

    def launch(self, launcher: Launcher, arguments: tuple[Any, ...]) -> None:
        """Launch on torch's current stream. Raises an error for a status of the driver other than success."""
        from cuda import core

        values = convert_arguments(self.kernel.base_name, self.parameters, arguments)
        with self.device_guard:
            if any(isinstance(value, bytes) for value in values):
                return self._launch_with_structs(launcher, values)
            packed = [c_type(value) for c_type, value in zip(self.c_types, values, strict=True)]
            configuration = self.configurations.get(launcher) or self._configure(launcher)
            core.launch(self._stream(), configuration, self.function, *packed)

    def _launch_with_structs(self, launcher: Launcher, values: list[Value]) -> None:
        """Launch through the driver: cuda.core packs scalars only, and the driver accepts any bytes as an argument."""
        from cuda.bindings import driver

        # For what it has the driver allow: shared memory beyond 48 KiB, and clusters that are not portable.
        self._configure(launcher)
        # Kept in a variable: the driver reads the values through the addresses below.
        packed = [
            (ctypes.c_uint8 * len(value))(*value)
            if isinstance(value, bytes)
            else C_TYPES.get(parameter.type, ctypes.c_void_p)(value)
            for parameter, value in zip(self.parameters, values, strict=True)
        ]
        addresses = (ctypes.c_void_p * len(packed))(*map(ctypes.addressof, packed))
        function = driver.CUfunction(int(self.function.handle))
        stream = driver.CUstream(self.current_stream(self.index))
        config = driver.CUlaunchConfig()
        # The driver counts the grid in blocks, with a cluster as well.
        config.gridDimX, config.gridDimY, config.gridDimZ = launcher.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launcher.block
        config.sharedMemBytes = launcher.shared
        config.hStream = stream
        config.attrs = self._attributes()
        config.numAttrs = len(config.attrs)
        (status,) = driver.cuLaunchKernelEx(config, function, ctypes.addressof(addresses), 0)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"the launch of {self.kernel.name}: {status.name}")

    def _attributes(self) -> list[Any]:
        """Return the kernel's launch attributes for the driver."""
        from cuda.bindings import driver

        attributes = []
        if self.kernel.attributes.cooperative:
            attributes.append(driver.CUlaunchAttribute())
            attributes[-1].id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            attributes[-1].value.cooperative = 1
        if self.kernel.attributes.cluster is not None:
            attributes.append(driver.CUlaunchAttribute())
            attributes[-1].id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            extents = attributes[-1].value.clusterDim
            extents.x, extents.y, extents.z = self.kernel.attributes.cluster
        if self.kernel.attributes.programmatic_stream_serialization:
            attributes.append(driver.CUlaunchAttribute())
            attributes[-1].id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attributes[-1].value.programmaticStreamSerializationAllowed = 1
        return attributes

    def _stream(self) -> Any:
        from cuda import core

        handle = self.current_stream(self.index)
        if handle not in self.streams:
            self.streams[handle] = core.Stream.from_handle(handle)
        return self.streams[handle]

    def _configure(self, launcher: Launcher) -> Any:
        from cuda import core

        if launcher.shared > self.shared_limit:
            self._allow_shared(launcher.shared)
        cluster = self.kernel.attributes.cluster
        self.configurations[launcher] = core.LaunchConfig(
            grid=launcher.grid if cluster is None else self._clusters(launcher.grid, cluster),
            cluster=cluster,
            block=launcher.block,
            shmem_size=launcher.shared,
            is_cooperative=self.kernel.attributes.cooperative,
            programmatic_stream_serialization=self.kernel.attributes.programmatic_stream_serialization,
        )
        return self.configurations[launcher]

    def _clusters(self, grid: Dim3, cluster: Dim3) -> Dim3:
        """Return the grid in clusters: with a cluster, cuda.core counts the grid in clusters and not in blocks."""
        for axis, extent, size in zip("xyz", grid, cluster, strict=True):
            if extent % size:
                raise ValueError(f"a grid of {extent} along {axis} is not a multiple of the cluster's {size}")
        if math.prod(cluster) > PORTABLE_CLUSTER_SIZE:
            self._allow("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)
        x, y, z = (extent // size for extent, size in zip(grid, cluster, strict=True))
        return x, y, z

    def _allow_shared(self, nbytes: int) -> None:
        """Request dynamic shared memory: static and dynamic together may exceed 48 KiB only where a kernel opts in."""
        if not self._allow("MAX_DYNAMIC_SHARED_SIZE_BYTES", nbytes):
            raise ValueError(f"{self.kernel.name} asks for {nbytes} bytes of shared memory, more than this GPU has")
        self.shared_limit = nbytes

    def _allow(self, attribute: str, value: int) -> bool:
        """Set an attribute of the kernel, and return whether the driver accepted it."""
        from cuda.bindings import driver

        attribute_id = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{attribute}")
        (status,) = driver.cuKernelSetAttribute(attribute_id, value, self.function.handle, self.index)
        return bool(status == driver.CUresult.CUDA_SUCCESS)

"""Stand-ins for a GPU where there is none: CUDA's driver, and sessions that say what they were asked for."""

from __future__ import annotations

import onnxruntime

__all__ = ["FakeDriver", "session_on_gpu"]

_NO_DEVICE, _INVALID_CONTEXT = 100, 201


class FakeDriver:
    """CUDA's library with one device, or none; ``free`` is None before the device is used."""

    def __init__(self, *, name="NVIDIA H100", memory=80 << 30, free=None, has_device=True):
        self.name, self.memory, self.free, self.has_device = name, memory, free, has_device

    def cuInit(self, flags):
        assert flags == 0
        return 0 if self.has_device else _NO_DEVICE

    def cuDeviceGet(self, device, ordinal):
        device._obj.value = ordinal
        return 0 if self.has_device else _NO_DEVICE

    def cuDeviceGetName(self, name, length, device):
        assert len(self.name) < length
        assert device.value == 0
        name.value = self.name.encode()
        return 0

    def cuDeviceTotalMem_v2(self, size, device):
        assert device.value == 0
        size._obj.value = self.memory
        return 0

    def cuDeviceGetUuid(self, number, device):
        assert device.value == 0
        number._obj[:] = range(16)
        return 0

    def cuMemGetInfo_v2(self, free, total):
        if self.free is None:
            return _INVALID_CONTEXT
        free._obj.value, total._obj.value = self.free, self.memory
        return 0


def session_on_gpu(**made):
    """A class of sessions that run on the CPU and say that they run on a GPU; ``made`` are options that it has."""

    class Session(onnxruntime.InferenceSession):
        def __init__(self, path, options, *, providers):
            super().__init__(path, options, providers=["CPUExecutionProvider"])
            ((name, asked), _) = providers
            self.said = {name: {"device_id": "0", **asked, **made}}

        def get_providers(self):
            return [*self.said, *super().get_providers()]

        def get_provider_options(self):
            return self.said | super().get_provider_options()

    return Session

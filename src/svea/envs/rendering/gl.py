"""OpenGL's functions without PyOpenGL's checks, which take longer than the calls."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

_INT, _FLOAT, _POINTER = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "ActiveTexture": (_INT,),
    "BindBuffer": (_INT, _INT),
    "BindBufferBase": (_INT, _INT, _INT),
    "BindFramebuffer": (_INT, _INT),
    "BindTexture": (_INT, _INT),
    "BindVertexArray": (_INT,),
    "BlendFunc": (_INT, _INT),
    "BlitFramebuffer": (_INT,) * 10,
    "BufferData": (_INT, ctypes.c_ssize_t, _POINTER, _INT),
    "Clear": (_INT,),
    "ClearColor": (_FLOAT,) * 4,
    "ClearDepth": (ctypes.c_double,),
    "ClearStencil": (_INT,),
    "ClipControl": (_INT, _INT),
    "ColorMask": (_INT,) * 4,
    "CullFace": (_INT,),
    "DepthFunc": (_INT,),
    "DepthMask": (_INT,),
    "Disable": (_INT,),
    "DrawElementsInstanced": (_INT, _INT, _INT, _POINTER, _INT),
    "Enable": (_INT,),
    "FrontFace": (_INT,),
    "PolygonOffset": (_FLOAT, _FLOAT),
    "StencilFunc": (_INT, _INT, _INT),
    "StencilOp": (_INT, _INT, _INT),
    "Uniform1i": (_INT, _INT),
    "UseProgram": (_INT,),
    "Viewport": (_INT,) * 4,
}


class Functions:
    """The functions of the context that is current, by their names without `gl`."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Look a function up, once."""
        from OpenGL.platform import PLATFORM

        address = PLATFORM.getExtensionProcedure(f"gl{name}".encode())
        if not address:
            raise AttributeError(f"this OpenGL has no gl{name}")
        made = ctypes.CFUNCTYPE(None, *_SIGNATURES[name])(address)
        setattr(self, name, made)
        return made


@functools.cache
def functions() -> Functions:
    """OpenGL's functions in this process."""
    return Functions()

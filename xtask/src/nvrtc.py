"""Compiles CUDA sources to PTX with NVRTC.

nvrtc.py SOURCES FOLDER OPTION... reads modules from its input, one to a line (name, file,
definitions), and writes the PTX of each to FOLDER/name.
"""

import ctypes
import glob
import os
import sys
from concurrent.futures import ProcessPoolExecutor

import nvidia.cuda_nvrtc as package

nvrtc = ctypes.CDLL(glob.glob(os.path.join(package.__path__[0], "lib", "libnvrtc.so.*"))[0])


def text(program, what):
    """What the library holds for a program: its log or its PTX."""
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    return buffer.value.decode()


def compile_module(module):
    """Writes the PTX of a module, and returns what the compiler has to say of it."""
    sources, folder, *options = sys.argv[1:]
    name, file, *defines = module.split()
    path = os.path.join(sources, file)
    with open(path, "rb") as source:
        code = source.read()
    # Errors are told with the file's name as it is given here.
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), code, file.encode(), 0, None, None)
    options += [f"-I{sources}"] + [f"-D{define}" for define in defines]
    array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    failed = nvrtc.nvrtcCompileProgram(program, len(options), array)
    log = text(program, "ProgramLog").strip()
    if not failed:
        with open(os.path.join(folder, name), "w") as ptx:
            ptx.write(text(program, "PTX"))
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return failed, f"{name}:\n{log}" if log else ""


def main():
    modules = [line for line in sys.stdin if line.strip()]
    status = 0
    # Processes, because the library compiles one program at a time.
    with ProcessPoolExecutor() as pool:
        for failed, log in pool.map(compile_module, modules):
            status |= failed
            if log:
                print(log, file=sys.stderr)
    sys.exit(1 if status else 0)


if __name__ == "__main__":
    main()

"""Compiles CUDA sources to PTX with NVRTC, and PTX to ready-made code with ptxas.

compile.py fixed|random SOURCES FOLDER OPTION... reads modules from its input, one to a line (name, file,
what the PTX is for, architectures or -, definitions), and writes the PTX of each to FOLDER/name.ptx and its code for an
architecture to FOLDER/name.architecture. The first argument says at which addresses memory is to be.
"""

import ctypes
import glob
import os
import subprocess
import sys
from multiprocessing import Pool

import nvidia.cuda_nvcc as assembler
import nvidia.cuda_nvrtc as compiler

nvrtc = ctypes.CDLL(glob.glob(os.path.join(compiler.__path__[0], "lib", "libnvrtc.so.*"))[0])
ptxas = os.path.join(assembler.__path__[0], "bin", "ptxas")


def text(program, what):
    """What the library holds for a program: its log or its PTX."""
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    return buffer.value.decode()


def without_comments(ptx):
    """PTX less its comments, which tell the build of the compiler, and its empty lines."""
    lines = (line.split("//")[0].rstrip() for line in ptx.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def compile_module(module):
    """Writes PTX and code of a module. Returns whether that failed, and what was said of it."""
    _, sources, folder, *options = sys.argv[1:]
    name, file, virtual, architectures, *defines = module.split()
    with open(os.path.join(sources, file), "rb") as source:
        code = source.read()
    # Errors are told with the file's name as it is given here.
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), code, file.encode(), 0, None, None)
    options += [f"--gpu-architecture={virtual}", f"-I{sources}"] + [f"-D{define}" for define in defines]
    array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    failed = nvrtc.nvrtcCompileProgram(program, len(options), array)
    log = text(program, "ProgramLog").strip()
    path = os.path.join(folder, name)
    if not failed:
        with open(f"{path}.ptx", "w") as ptx:
            ptx.write(without_comments(text(program, "PTX")))
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    for architecture in architectures.split(",") if architectures != "-" and not failed else []:
        command = [ptxas, f"-arch={architecture}", f"{path}.ptx", "-o", f"{path}.{architecture}"]
        ran = subprocess.run(command, capture_output=True, text=True)
        failed |= ran.returncode
        log += ran.stdout + ran.stderr
    return failed, f"{name}:\n{log}" if log else ""


def at_fixed_addresses():
    """Begins again where memory has the same addresses each time: what the library makes of a large
    module depends on them."""
    no_randomize = 0x0040000
    libc = ctypes.CDLL(None)
    before = libc.personality(0xFFFFFFFF)
    if before & no_randomize == 0 and libc.personality(before | no_randomize) != -1:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})


def main():
    if sys.argv[1] == "fixed":
        at_fixed_addresses()
    modules = [line for line in sys.stdin if line.strip()]
    status = 0
    # Processes, because the library compiles one program at a time; one for each module, so that
    # none depends on those before it.
    with Pool(maxtasksperchild=1) as pool:
        for failed, log in pool.imap(compile_module, modules):
            status |= failed
            if log:
                print(log, file=sys.stderr)
    sys.exit(1 if status else 0)


if __name__ == "__main__":
    main()

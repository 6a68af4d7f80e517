"""Put before Python's own by gorun (--python-abort): an exception that nothing catches in a
rank that uses mpi4py ends the whole job. Otherwise the rank would wait in MPI_Finalize for
the others, and they for it.

The exception is seen by sys.excepthook, so what is caught, and sys.exit, change nothing. The
program sees neither this file's directory nor a changed PYTHONPATH, and a sitecustomize of
the system or the user runs as ever. A program that puts its own function into sys.excepthook
without calling the one before decides by itself.
"""
import os
import sys


def _hide():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if p != here]
    first, _, rest = os.environ.get("PYTHONPATH", "").partition(os.pathsep)
    if first == here:
        if rest:
            os.environ["PYTHONPATH"] = rest
        else:
            del os.environ["PYTHONPATH"]


def _next():
    """Import the sitecustomize that this one hides."""
    me = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as e:
        if me is not None:
            sys.modules["sitecustomize"] = me
        if getattr(e, "name", "sitecustomize") != "sitecustomize":
            raise


def _install():
    program = os.path.basename(os.path.realpath("/proc/self/exe"))
    if not program.startswith(("python", "pypy")):
        return  # Python is a part of another program, which goes on after exceptions
    previous = sys.excepthook
    process = os.getpid()

    def hook(kind, value, trace):
        previous(kind, value, trace)
        try:
            if os.getpid() == process and not _interactive() and _uncaught():
                _abort(130 if issubclass(kind, KeyboardInterrupt) else 1)
        except Exception:
            pass  # the exception of the program is what counts

    sys.excepthook = hook


def _interactive():
    return hasattr(sys, "ps1") or sys.flags.inspect or bool(os.environ.get("PYTHONINSPECT"))


def _uncaught():
    """Whether the interpreter itself has called the hook in force, not a program's function."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    hook = sys.excepthook
    return frame.f_code is getattr(getattr(hook, "__func__", hook), "__code__", None)


def _abort(status):
    """Have mpi4py call MPI_Abort instead of MPI_Finalize, behind the program's exit handlers."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return
    if mpi.COMM_WORLD.Get_size() == 1 and mpi.Comm.Get_parent() == mpi.COMM_NULL:
        return
    try:
        from mpi4py.run import set_abort_status
    except ImportError:  # before mpi4py 3
        import atexit
        atexit.register(mpi.COMM_WORLD.Abort, status)
    else:
        set_abort_status(status)


try:
    _hide()
    _next()
finally:
    _install()

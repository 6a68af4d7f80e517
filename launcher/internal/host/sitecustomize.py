"""Put before Python's own by gorun (--python-abort): an exception that nothing catches in a
rank that uses mpi4py, and sys.exit with a failure, end the whole job. Otherwise the rank would
wait in MPI_Finalize for the others, and they for it.

An exception is seen by sys.excepthook, so what is caught changes nothing. The interpreter does
not call that for SystemExit; it reads the exception's code, as the last thing before it ends.
sys.path is without this file's directory, and a sitecustomize of the system or the user runs as
ever; PYTHONPATH keeps it for the programs that this one starts. A program that puts its own
function into sys.excepthook without calling the one before decides by itself.
"""
import os
import sys


def _hide():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if p != here]


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

    def exits(code):
        if os.getpid() == process and not _interactive() and code is not None:
            _abort(code & 255 if isinstance(code, int) else 1)

    sys.excepthook = hook
    try:
        _watch_exit(exits)
    except Exception:
        pass  # an interpreter that keeps its classes elsewhere


def _watch_exit(exits):
    """Have exits called with the code of a SystemExit that the interpreter ends with."""
    import gc

    names = gc.get_referents(SystemExit.__dict__)[0]  # which Python's own code may not change
    member = names["code"]

    def get(self):
        code = member.__get__(self)
        try:
            if sys._getframe().f_back is None:  # no code of the program asks
                exits(code)
        except Exception:
            pass
        return code

    names["code"] = property(get, member.__set__, member.__delete__)
    if sys.version_info < (3, 12):
        sys.exit = _exit


def _exit(status=None):
    """Exit the interpreter by raising SystemExit(status), which that of C makes no instance of."""
    raise SystemExit(*status) if isinstance(status, tuple) else SystemExit(status)


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
    if mpi is None or status == 0 or not mpi.Is_initialized() or mpi.Is_finalized():
        return
    if getattr(sys.modules.get("multiprocessing.process"), "_parent_process", None):
        return  # the rank decides about what it has started so
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

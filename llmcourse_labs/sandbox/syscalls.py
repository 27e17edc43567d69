"""System calls that a learner's process may not make: those that hold memory outside processes.

The grader adds up the resident memory of a submission's processes; file systems in memory have
sizes of their own.  What these calls hold is in neither sum.  They fail as on a system that does
not have them, so that a program which can do without them goes on.

Source: seccomp(2), libseccomp's seccomp_rule_add(3).
"""

import ctypes
import errno

LIBRARY = "libseccomp.so.2"
"""Comes with systemd and with Debian's apt; it knows the numbers of each processor's calls."""
NOT_HERE = {
    "memfd_create": errno.ENOSYS,  # a file without a file system, also while no process has it
    "memfd_secret": errno.ENOSYS,
    "shmget": errno.ENOSYS,  # System V: objects that no process need hold
    "msgget": errno.ENOSYS,
    "semget": errno.ENOSYS,
    "add_key": errno.ENOSYS,  # the keys of a user, whom submissions may share
    "request_key": errno.ENOSYS,
    "keyctl": errno.ENOSYS,
    "vmsplice": errno.ENOSYS,  # pages of 2 MiB, held by a pipe for a byte each
    "io_uring_setup": errno.ENOSYS,
    "bpf": errno.EPERM,
    "clone3": errno.ENOSYS,  # a filter cannot read its flags; the C library goes on to clone
    "setxattr": errno.ENOTSUP,  # an access list of 64 KiB for each file
    "lsetxattr": errno.ENOTSUP,
    "fsetxattr": errno.ENOTSUP,
}
SETXATTRAT = 463  # on every processor; younger than some of the libraries
CLONE_NEWUSER, SHARED_ANONYMOUS, SET_DUMPABLE = 0x1000_0000, 0x21, 4
ONLY_WITH = {
    # Rights over a name space of one's own: file systems in memory, as many as one likes.
    "clone": (0, CLONE_NEWUSER, CLONE_NEWUSER, errno.EPERM),
    "unshare": (0, CLONE_NEWUSER, CLONE_NEWUSER, errno.EPERM),
    # It stays when a process gives its pages back, or has never touched them.
    "mmap": (3, SHARED_ANONYMOUS, SHARED_ANONYMOUS, errno.ENOMEM),
    # The grader looks at what a process holds.
    "prctl": (0, 0xFFFF_FFFF, SET_DUMPABLE, errno.EPERM),
}
"""Refused where an argument (its position), under a mask, has a value."""
_ALLOW, _ERRNO, _MASKED_EQ = 0x7FFF_0000, 0x0005_0000, 7


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("position", ctypes.c_uint), ("how", ctypes.c_int),
        ("mask", ctypes.c_uint64), ("value", ctypes.c_uint64),
    )  # fmt: skip


def refuse() -> None:
    """Refuse these calls to this process and all that it starts, for good.

    Raises:
        OSError: if the system cannot do it, or has not the library for it.
    """
    library = ctypes.CDLL(LIBRARY)
    library.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_ALLOW)))

    def add(call: int, error: int, *comparisons: _Comparison) -> None:
        array = (_Comparison * 1)(*comparisons)
        action = ctypes.c_uint32(_ERRNO | error)
        _must(library.seccomp_rule_add_array(rules, action, call, len(comparisons), array))

    def number(name: str) -> int:
        return library.seccomp_syscall_resolve_name(name.encode())

    for name, error in NOT_HERE.items():
        add(number(name), error)
    add(SETXATTRAT, errno.ENOTSUP)
    for name, (position, mask, value, error) in ONLY_WITH.items():
        add(number(name), error, _Comparison(position, _MASKED_EQ, mask, value))
    _must(library.seccomp_load(rules))
    library.seccomp_release(rules)


def _must(returned: int) -> None:
    """Raise what a function of the library returns as a negative number."""
    if returned < 0:
        raise OSError(-returned, f"system calls cannot be refused: {LIBRARY}")

"""Disks, file systems and file servers: lines of the kernel, and what programs say when they cannot read or write."""

from reliability.domain.faults.families.rows import (
    ERROR,
    FATAL,
    INFO,
    OBSERVE,
    RESTART,
    STORAGE,
    family,
    line,
    row,
)
from reliability.domain.faults.words import Origin

_SEEN = (STORAGE, OBSERVE, ERROR)
_LOST = (STORAGE, OBSERVE, FATAL)
_NFS = (
    r"(?:(?:\[<[0-9a-f]+>\] )?\s*(?:\? "
    r")?)(?P<function>nfs_lock_and_join_requests|nfs_wb_all|nfs_page_async_flush|nfs_writepages_callback)\+0x[0-9a-f]+"
)

KERNEL = family(
    "linux-kernel",
    Origin.KERNEL,
    row(
        "disk-slow",
        *_SEEN,
        "A disk did not answer a command in time.",
        "Copies go to the next tier meanwhile; take the node out if it repeats.",
        line(r"nvme (?P<device>nvme\d+): I/O .{1,80} timeout, (?:reset controller|aborting)", " timeout, "),
        line(r"nvme (?P<device>nvme\d+): controller is down; will reset", "controller is down; will reset"),
        "nvme nvme3: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller",
        "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff",
    ),
    row(
        "disk-lost",
        *_LOST,
        "A disk was given up by the kernel.",
        "The other tiers go on; replace the disk and hold the node at a quiet moment.",
        line(
            r"nvme (?P<device>nvme\d+): (?:Disabling device after reset failure|Removing after probe failure)",
            "Disabling device after reset failure",
            "Removing after probe failure",
        ),
        line(r"block (?P<device>nvme\S+): no available path - failing I/O", "no available path - failing I/O"),
        "nvme nvme3: Disabling device after reset failure: -19",
        "block nvme1n1: no available path - failing I/O",
    ),
    row(
        "disk-error",
        *_SEEN,
        "A disk could not read or write.",
        "Snapshots on it are verified before use; replace the disk if it repeats.",
        line(r"(?:blk_update_request: )?I/O error, dev (?P<device>[^,\s]+), sector (?P<sector>\d+)", "I/O error, dev "),
        line(
            r"(?:blk_update_request: )?critical medium error, dev (?P<device>[^,\s]+), sector (?P<sector>\d+)",
            "critical medium error",
        ),
        "blk_update_request: I/O error, dev nvme1n1, sector 264192 op 0x1:(WRITE) flags 0x1000 phys_seg 4 prio class 0",
        "critical medium error, dev sdb, sector 1953525160 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 0",
    ),
    row(
        "disk-write-lost",
        *_SEEN,
        "Something that a program thought was written is lost.",
        "The snapshot that was being written does not count; replace the disk if it repeats.",
        line(r"Buffer I/O error on dev (?P<device>[^,\s]+), logical block (?P<block>\d+)", "Buffer I/O error on dev"),
        "Buffer I/O error on dev dm-1, logical block 13080985, lost async page write",
    ),
    row(
        "filesystem-damaged",
        *_LOST,
        "A file system is damaged.",
        "Other tiers go on; repair it before it is used again.",
        line(r"EXT4-fs error \(device (?P<device>[^)\s]+)\)", "EXT4-fs error"),
        "EXT4-fs error (device nvme1n1): ext4_find_entry:1436: inode #2: comm cp: reading directory lblock 0",
    ),
    row(
        "filesystem-read-only",
        *_LOST,
        "A file system turned read-only after an error.",
        "Every later snapshot there fails: repair it; other tiers go on.",
        line(
            r"(?:[\w-]+ \((?P<device>[^)\s]+)\): )?Remounting filesystem read-only", "Remounting filesystem read-only"
        ),
        "EXT4-fs (md1): Remounting filesystem read-only",
    ),
    row(
        "filesystem-unwritten",
        *_LOST,
        "A file system could not write its own records.",
        "Every later snapshot there is in doubt: repair it; other tiers go on.",
        line(
            r"[\w-]+ \((?P<device>[^)\s]+)\): I/O error while writing superblock", "I/O error while writing superblock"
        ),
        "EXT4-fs (dm-1): I/O error while writing superblock",
    ),
    row(
        "filesystem-shut-down",
        *_LOST,
        "A file system failed and shut itself down.",
        "The tier on it is lost; other tiers go on. Repair it.",
        line(
            r"XFS \((?P<device>[^)\s]+)\): (?:log I/O error|Corruption of in-memory data|.{0,120}[Ss]hutting down "
            r"filesystem)",
            "XFS (",
        ),
        "XFS (md126): log I/O error -5",
    ),
    row(
        "raid-disk-lost",
        *_LOST,
        "A disk of an array failed; an array without redundancy is lost with it.",
        "Rebuild the array; other tiers go on.",
        line(
            r"md/raid(?P<level>\d*):?\s?(?P<array>md[\w/]+)?:? ?Disk failure on (?P<device>\S+?),? ?"
            r"(?:detected|disabling)",
            "Disk failure on",
        ),
        "md/raid0md0: Disk failure on nvme2n1p1 detected, failing array.",
        "md/raid:md2: Disk failure on sdc1, disabling device.",
    ),
    row(
        "disk-beyond-end",
        *_SEEN,
        "Something was asked of a place behind the end of a disk.",
        "Check its partitions; other tiers go on.",
        line(r"(?:\S{1,80}: )?attempt to access beyond end of device", "attempt to access beyond end of device"),
        "kworker/u203:2: attempt to access beyond end of device",
    ),
    row(
        "nfs-silent",
        *_SEEN,
        "The file server does not answer.",
        "No node is at fault when several report it; check the server and the way to it.",
        line(r"nfs: server (?P<server>\S+) not responding", "nfs: server "),
        "nfs: server 192.0.2.9 not responding, timed out",
    ),
    row(
        "nfs-back",
        STORAGE,
        OBSERVE,
        INFO,
        "The file server answers again.",
        "Nothing to do.",
        line(r"nfs: server (?P<server>\S+) OK", "nfs: server "),
        "nfs: server 192.0.2.9 OK",
        clears="nfs-silent",
    ),
    row(
        "nfs-locks-lost",
        *_SEEN,
        "Locks on the file server were lost.",
        "Who may write is told by epochs, so snapshots stay right; other programs may have written twice.",
        line(r"(?:NFS: )?nfs4_reclaim_open_state: Lock reclaim failed", "Lock reclaim failed"),
        "nfs4_reclaim_open_state: Lock reclaim failed!",
    ),
    row(
        "nfs-stuck",
        *_SEEN,
        "A process hangs in the kernel while it writes to the file server.",
        "Check the server; a reboot may be the only way to free the node.",
        line(_NFS, *("nfs_lock_and_join_requests+0x", "nfs_wb_all+0x", "nfs_page_async_flush+0x"), "callback+0x"),
        " nfs_wb_all+0x2c/0x190 [nfs]",
    ),
    row(
        "lustre-evicted",
        *_SEEN,
        "The file server dropped this node with all it had not written yet.",
        "The snapshot that was being written does not count.",
        line(r"(?:LustreError: \S+ \S+ )?This client was evicted by (?P<server>[^\s;]+)", "This client was evicted by"),
        "LustreError: 167-0: lustre-OST0002-osc-ffff: This client was evicted by lustre-OST0002; in progress "
        "operations using this service will fail.",
    ),
)

_ERRNO = r"\[Errno {}\] {}(?:: (?P<path>'[^']{{1,300}}'))?"


PROGRAMS = family(
    "snapshot-io",
    Origin.OUTPUT,
    row(
        "disk-full",
        *_SEEN,
        "A disk has no room.",
        "Free space or keep fewer snapshots; no node is at fault.",
        line(_ERRNO.format(28, "No space left on device"), "No space left on device"),
        line(r"No space left on device \(os error 28\)", "os error 28"),
        "OSError: [Errno 28] No space left on device: '/ckpt/step-40'",
        "Error: No space left on device (os error 28)",
    ),
    row(
        "quota-full",
        *_SEEN,
        "A quota is used up, though the disk has room.",
        "Raise the quota or keep fewer snapshots; no node is at fault.",
        line(_ERRNO.format(122, "Disk quota exceeded"), "Disk quota exceeded"),
        "OSError: [Errno 122] Disk quota exceeded",
    ),
    row(
        "tier-read-only",
        *_SEEN,
        "A file system cannot be written to any more.",
        "Repair it; other tiers go on.",
        line(_ERRNO.format(30, "Read-only file system"), "Read-only file system"),
        "OSError: [Errno 30] Read-only file system: '/ckpt/step-40'",
    ),
    row(
        "tier-io-error",
        *_SEEN,
        "A disk or file server failed on reading or writing.",
        "Look for the lines of the disk; other tiers go on.",
        line(_ERRNO.format(5, "Input/output error"), "Input/output error"),
        "OSError: [Errno 5] Input/output error: '/ckpt/step-40'",
    ),
    row(
        "stale-handle",
        STORAGE,
        RESTART,
        ERROR,
        "A folder on the file server was replaced under the program.",
        "Mount it again; the program is restarted.",
        line(_ERRNO.format(116, "Stale file handle"), "Stale file handle"),
        "OSError: [Errno 116] Stale file handle",
    ),
    row(
        "snapshot-cut",
        STORAGE,
        RESTART,
        ERROR,
        "A snapshot file of the program is cut short.",
        "All ranks go back to an older snapshot; look for a failing disk if it repeats.",
        line(
            r"PytorchStreamReader failed (?:finding central directory|reading zip archive|locating file)",
            "PytorchStreamReader failed",
        ),
        line(r"unexpected EOF, expected (?P<missing>\d+) more bytes", "unexpected EOF, expected"),
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "RuntimeError: unexpected EOF, expected 16 more bytes. The file might be corrupted.",
    ),
    row(
        "snapshot-unwritten",
        *_SEEN,
        "A program could not finish writing its snapshot file.",
        "That snapshot does not count; check room and disk.",
        line(r"PytorchStreamWriter failed writing file", "PytorchStreamWriter failed"),
        "RuntimeError: [enforce fail at inline_container.cc:595] . PytorchStreamWriter failed writing file data/3: "
        "file write failed",
    ),
    row(
        "snapshot-uncommitted",
        STORAGE,
        RESTART,
        ERROR,
        "The program chose a snapshot that was never finished.",
        "It is started from the newest finished one.",
        line(r"Found incomplete checkpoint at (?P<path>\S{1,300})", "Found incomplete checkpoint"),
        "ValueError: Found incomplete checkpoint at /ckpt/1840",
    ),
)

ROWS = (*KERNEL, *PROGRAMS)

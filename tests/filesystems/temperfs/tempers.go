package main

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"
)

// Tempers are the ways in which this file system differs from the disk's. The zero value is a plain POSIX
// file system that all mounts see alike. Each comment names the line of the vendor's source or manual that
// the temper was written from. It is a reading of that line, unless it says that it was seen: BeeGFS alone was run.
//
// BeeGFS: github.com/ThinkParQ/beegfs, tags 7.4.7 and 8.3; WEKA: docs.weka.io 4.4; NFS: Linux fs/nfs;
// Lustre: git.whamcloud.com fs/lustre-release.
type Tempers struct {
	// A folder renamed over anything, an empty folder too: EEXIST. BeeGFS: meta, MetaStore::renameInSameDir
	// and ::checkRenameOverwrite ("a directory cannot overwrite an existing entry").
	FolderOverNothing bool `json:"folder_over_nothing"`

	// Folders (paths below the root) with a quota of their own; a rename or link from one to another, or to
	// the rest, is EXDEV. WEKA, "Quota management": "movement of files or directories into/out of a
	// directory with a quota is unsupported"; Lustre: mdt_reint.c, project ids that differ.
	QuotaTrees []string `json:"quota_trees"`

	// A file that any mount has open cannot be renamed into another folder: EBUSY. BeeGFS: an inlined inode
	// that is referenced, FhgfsOpsErr_INUSE (its client's sysRenameEbusyAsXdev makes EXDEV of it);
	// seen as con/git-annex#288.
	BusyRename string `json:"busy_rename"`

	// Seconds for which a file that is renamed into another folder has both names. BeeGFS: meta,
	// RenameV2MsgEx::moving (insert at the target, then unlink at the source). Folders are moved at once here.
	TwoStepRename float64 `json:"two_step_rename"`

	// Hard links: "" anywhere, "folder" in the file's own folder alone, else EPERM (BeeGFS up to 7.3: meta,
	// HardlinkMsgEx), "none" EPERM, "symlink" a symbolic link is made without a word (BeeGFS: client,
	// FhgfsOps_link with sysCreateHardlinksAsSymlinks=true).
	Links string `json:"links"`

	// renameat2 with any flag: EINVAL. BeeGFS: client, FhgfsOps_rename ("if (flags) return -EINVAL"); NFS:
	// fs/nfs/dir.c nfs_rename, the same line.
	NoRenameFlags bool `json:"no_rename_flags"`

	// flock and fcntl locks hold on one mount alone. BeeGFS: beegfs-client.conf,
	// tuneUseGlobalFileLocks=false (the default); Lustre: the mount option localflock.
	LocalLocks bool `json:"local_locks"`

	// fsync of a folder is a success that does nothing: names are durable when the metadata server has
	// answered, and nothing else becomes so. BeeGFS: client, FhgfsOps_fsync on a folder. Without this
	// temper it makes durable what lies in the folder, as a journal in ordered mode does.
	FolderFsyncNothing bool `json:"folder_fsync_nothing"`

	// Names are durable by an fsync of their folder alone: what POSIX leaves open, and ext4 and XFS do.
	NamesByFsync bool `json:"names_by_fsync"`

	// What one mount wrote and the others see: "" at once; "close-to-open" when it is closed or synced, and
	// by who opens the file after that (BeeGFS: beegfs-client.conf, tuneFileCacheType=buffered, "non-coherent
	// ... flushed when a file is closed"; NFS: nfs(5), "Close-to-open cache consistency"; WEKA, "Mount modes":
	// two mounts on one host are not coherent); "coherent" at once, but held back at the client (Lustre:
	// LDLM extent locks are called back). O_DIRECT passes it (BeeGFS: FhgfsOpsFile.c; open(2)).
	Cache string `json:"cache"`

	// Seconds for which a mount believes a name that it saw. BeeGFS: tuneDirSubentryCacheValidityMS=1000;
	// WEKA: dentry_max_age_positive=1000; NFS: acdirmin=30 to acdirmax=60, of which the sets take less, so
	// that tests need not wait a minute.
	EntrySeconds float64 `json:"entry_seconds"`

	// Seconds for which a mount believes that a name is not there. NFS: nfs(5), lookupcache=all.
	AbsentSeconds float64 `json:"absent_seconds"`

	// Seconds for which a mount shows a folder's names as it listed them, unless it has changed the folder
	// itself. NFS: fs/nfs/dir.c, nfs_readdir goes by the cached pages while the folder's attributes count as
	// valid (acdirmin=30 to acdirmax=60).
	ListSeconds float64 `json:"list_seconds"`

	// Seconds for which a mount believes a file's size and times. NFS: acregmin=3.
	AttrSeconds float64 `json:"attr_seconds"`

	// Where an error of the write-back shows: "" at close and at fsync (NFS: nfs_file_flush), "fsync" there
	// alone: close is a success, and the bytes are gone. WEKA: sync_on_close, "essential when applications
	// expect write errors at close if quota is exceeded", is off by default.
	LateErrors string `json:"late_errors"`

	// Bytes that the store takes before EDQUOT, which a write-back cache learns late. 0: any. WEKA, "Quota
	// management": "exceeding the quota might not sync all the cache writes".
	QuotaBytes int64 `json:"quota_bytes"`

	// statvfs of what lies in one of quota_trees has quota_bytes as its size. WEKA, "Quota management": `df`
	// shows the hard quota; ext4 and XFS: project quotas (ext4_statfs_project, xfs_qm_statvfs).
	QuotaShown bool `json:"quota_shown"`

	// Group id to bytes: a chgrp beyond that is EDQUOT, after the data is written. BeeGFS: meta,
	// SetAttrMsgEx (chgrp moves the file to another quota).
	GroupQuota map[uint32]int64 `json:"group_quota"`

	// statvfs reports 0 inodes of 0. BeeGFS: client, FhgfsOps_statfs ("not supported currently").
	StatvfsZero bool `json:"statvfs_zero"`

	// Bytes of all extended attributes of a file together; beyond that ENOSPC. 0: any, -1: none at all.
	// WEKA, "Limitations": 1,024 bytes; BeeGFS: sysXAttrsEnabled=false (the default): none.
	XattrBytes int `json:"xattr_bytes"`

	// New files and folders get mode & and, | or. WEKA, mount options file_create_mask,
	// directory_create_mask, force_file_mode, force_directory_mode. A nil mask changes nothing.
	FileMask   *Mask `json:"file_mask"`
	FolderMask *Mask `json:"folder_mask"`

	// What the open of a stub (command `stub`) does: "restore" brings its bytes back from the archive
	// (BeeGFS 8.4: restore policy auto; Lustre: llite, ll_layout_restore; WEKA: tiered data), "refuse" is
	// EWOULDBLOCK (BeeGFS before 8.3).
	Stubs string `json:"stubs"`

	// Seconds that a utimes or a chgrp costs: it goes to every storage target. BeeGFS: meta, SetAttrMsgEx.
	// A chmod does not.
	RoundSeconds float64 `json:"round_seconds"`

	// fallocate: EOPNOTSUPP. BeeGFS: the client has no such operation (fhgfs_file_operations).
	NoFallocate bool `json:"no_fallocate"`

	// Nanoseconds to which times are rounded down. BeeGFS: client, FhgfsOps_fillSuper, "s_time_gran =
	// 1000000000".
	TimeGrain int64 `json:"time_grain"`

	// Inode numbers are hashes of all 64 bits, so half of all lie at or above 2^63. BeeGFS: client,
	// sysInodeIDStyle=md4hash64 (the default); seen on 7.4.7 and 8.3.1. Here every number has the highest bit.
	HighInodes bool `json:"high_inodes"`

	// A file that this mount has open is renamed to .nfsXXXX when it is removed. NFS: fs/nfs/unlink.c.
	SillyRename bool `json:"silly_rename"`

	// All readers of a file on one mount share one handle at its server, which is opened by O_DIRECT where the
	// first who read had it so: then a read is EREMOTEIO unless its offset and length are aligned, whoever
	// reads. BeeGFS 7.4.7 and 8.3.1, tuneFileCacheType=buffered: seen on both; client, FhgfsInode.c.
	SharedHandles bool `json:"shared_handles"`

	// The most bytes that are stated of a file's size; reads have no such end. Nil: sizes are right. rclone,
	// "rclone mount": objects whose size is not known have the size 0, and are read past the page cache
	// (FOPEN_DIRECT_IO); gcsfuse: an object stored with Content-Encoding gzip has its packed size.
	StatedMost *uint64 `json:"stated_most"`

	// An open file that another mount removed: ESTALE. NFS: RFC 1813 NFS3ERR_STALE.
	StaleHandles bool `json:"stale_handles"`
}

// number is the inode number that is stated of a file.
func (t *Tempers) number(inode uint64) uint64 {
	if t.HighInodes {
		return inode | 1<<63
	}
	return inode
}

// Mask is applied to the mode of what is made.
type Mask struct {
	And uint32 `json:"and"`
	Or  uint32 `json:"or"`
}

func (m *Mask) of(mode uint32) uint32 {
	if m == nil {
		return mode
	}
	return mode&^07777 | (mode & 07777 & m.And) | m.Or
}

// Options are what the program is started with.
type Options struct {
	Store  string   `json:"store"`  // the ordinary folder below all mounts
	Side   string   `json:"side"`   // a folder beside it, on the same file system, for what nobody sees
	Mounts []string `json:"mounts"` // one a node
	Name   string   `json:"name"`   // of the set, as mount(8) shows it
	Log    string   `json:"log"`    // a file that gets a line for each operation; "" for none
	Power  bool     `json:"power"`  // keep what a power cut would leave
	Tempers
}

func readOptions(path string) (*Options, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var options Options
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&options); err != nil {
		return nil, err
	}
	known := map[string][]string{
		"busy_rename": {options.BusyRename, "", "EBUSY", "EXDEV"},
		"links":       {options.Links, "", "folder", "none", "symlink"},
		"cache":       {options.Cache, "", "close-to-open", "coherent"},
		"late_errors": {options.LateErrors, "", "fsync"},
		"stubs":       {options.Stubs, "", "restore", "refuse"},
	}
	for name, values := range known {
		if !among(values[0], values[1:]) {
			return nil, fmt.Errorf("%s: %q is none of %q", name, values[0], values[1:])
		}
	}
	return &options, nil
}

func among(value string, values []string) bool {
	for _, one := range values {
		if one == value {
			return true
		}
	}
	return false
}

var errnos = map[string]syscall.Errno{
	"EBUSY": syscall.EBUSY, "EXDEV": syscall.EXDEV, "EIO": syscall.EIO, "EDQUOT": syscall.EDQUOT,
	"ENOSPC": syscall.ENOSPC, "ESTALE": syscall.ESTALE,
}

package main

import (
	"cmp"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// memoryShare of a control group's limit is the process's: the rest is for what the collector does not count.
const memoryShare = 0.9

// limitMemory gives the collector a soft limit: GOMEMLIMIT, which the runtime has read, where it is set, else a share of
// the least limit of the process's control groups, else none. The log says whose. root is the file system's.
func limitMemory(root fs.FS, log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		log.Info("memory limit", "bytes", debug.SetMemoryLimit(-1), "from", "GOMEMLIMIT")
		return
	}
	limit, file := groupLimit(root)
	if file == "" {
		return
	}
	bytes := int64(float64(limit) * memoryShare)
	debug.SetMemoryLimit(bytes)
	log.Info("memory limit", "bytes", bytes, "from", file)
}

// groupLimit is the least memory limit, in bytes, of the process's control groups and those above them, of version 2
// or 1, and the file that sets it; "" where none is set or can be read. In a container the groups are often named as
// on the host and mounted as the root: so every level is looked for, and what is not there is passed over.
func groupLimit(root fs.FS) (least int64, file string) {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, ""
	}
	least = math.MaxInt64
	for line := range strings.Lines(string(groups)) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":") // hierarchy:controllers:path
		controllers, group, _ := strings.Cut(rest, ":")
		mount, name := "sys/fs/cgroup", "memory.max"
		if id != "0" {
			mount, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
			if !slices.Contains(strings.Split(controllers, ","), "memory") {
				continue
			}
		}
		for at := path.Join("/", group); ; at = path.Dir(at) {
			in := path.Join(mount, at, name)
			if n := limitIn(root, in); n < least {
				least, file = n, "/"+in
			}
			if at == "/" {
				break
			}
		}
	}
	return least, file
}

// noLimit is what version 1 says for none, up to a page; version 2 says "max".
const noLimit = math.MaxInt64 &^ (1<<16 - 1)

// limitIn is the limit that a file states; MaxInt64 for none.
func limitIn(root fs.FS, name string) int64 {
	text, err := fs.ReadFile(root, name)
	n, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if cmp.Or(err, bad) != nil || n <= 0 || n >= noLimit {
		return math.MaxInt64
	}
	return n
}

package agent

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// releaseProgramPages gives back the pages of the program that only its start needed: the
// binary holds the whole CLI, and what an agent runs is a small part of it. They
// are clean pages of a file; one that is needed again is read again.
func releaseProgramPages() {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	self, err := os.Executable()
	if err != nil {
		return
	}
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[5] != self || strings.Contains(fields[1], "w") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		begin, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 == nil && err2 == nil {
			_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, uintptr(begin), uintptr(end-begin), uintptr(syscall.MADV_DONTNEED))
		}
	}
}

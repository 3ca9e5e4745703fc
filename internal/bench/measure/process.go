package measure

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ticks that the kernel counts CPU time in, per second, on every Linux that Go runs
// on.
const ticks = 100

// Process is what the kernel says of one process, or of several together.
type Process struct {
	// Resident bytes now, and Peak since the process began.
	Resident, Peak float64
	// File is the part of Resident that is pages of files: of the program, and of
	// what it maps, such as etcd's database. The kernel takes them back when it needs
	// the memory.
	File float64
	// CPU seconds since it began.
	CPU float64
}

// ReadProcess reads the sum over processes.
func ReadProcess(pids ...int) (Process, error) {
	var all Process
	for _, pid := range pids {
		one, err := readProcess(pid)
		if err != nil {
			return Process{}, err
		}
		all.Resident += one.Resident
		all.Peak += one.Peak
		all.File += one.File
		all.CPU += one.CPU
	}
	return all, nil
}

func readProcess(pid int) (p Process, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, fmt.Errorf("read what process %d costs: %w", pid, err)
	}
	// The program's name is in brackets and may hold anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return p, fmt.Errorf("/proc/%d/stat has an unknown form", pid)
	}
	for _, field := range fields[11:13] { // user and system time
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return p, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		p.CPU += n / ticks
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return p, fmt.Errorf("read what process %d costs: %w", pid, err)
	}
	for line := range strings.Lines(string(status)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "VmRSS: %f kB", &kib); n == 1 {
			p.Resident = kib * 1024
		}
		if n, _ := fmt.Sscanf(line, "RssFile: %f kB", &kib); n == 1 {
			p.File = kib * 1024
		}
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kib); n == 1 {
			p.Peak = kib * 1024
		}
	}
	return p, nil
}

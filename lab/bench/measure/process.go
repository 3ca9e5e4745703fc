package measure

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ticksPerSecond is the unit in which the kernel counts CPU time, on every Linux that Go
// runs on.
const ticksPerSecond = 100

// ProcessUsage is the kernel's accounting of one process or of several.
type ProcessUsage struct {
	// Resident is the present resident bytes, Peak the most since the start.
	Resident, Peak float64
	// File is the part of Resident in pages of files: the program and its mappings, such
	// as etcd's database. The kernel reclaims them when it needs the memory.
	File float64
	// CPU is the CPU time since the start, in seconds.
	CPU float64
}

// ReadProcess returns the sum over processes.
func ReadProcess(pids ...int) (ProcessUsage, error) {
	var all ProcessUsage
	for _, pid := range pids {
		one, err := readProcess(pid)
		if err != nil {
			return ProcessUsage{}, err
		}
		all.Resident += one.Resident
		all.Peak += one.Peak
		all.File += one.File
		all.CPU += one.CPU
	}
	return all, nil
}

func readProcess(pid int) (p ProcessUsage, err error) {
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
		p.CPU += n / ticksPerSecond
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

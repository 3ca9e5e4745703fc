package childprocess

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// isolateChild lets a child end with the hub.
func isolateChild(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// Limit bounds this process. This process ends first when the machine has no memory left.
func Limit(l Limits) error {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return fmt.Errorf("let this process end before the hub: %w", err)
	}
	limits := map[int]uint64{unix.RLIMIT_DATA: l.DataBytes, unix.RLIMIT_FSIZE: l.FileBytes, unix.RLIMIT_NOFILE: l.OpenFiles}
	for resource, limit := range limits {
		if limit == 0 {
			continue
		}
		if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			return err
		}
	}
	return syscall.Setrlimit(unix.RLIMIT_CORE, &syscall.Rlimit{})
}

// LimitCPU signals when this process took a number of seconds of the processor. The kernel ends it soon after.
func LimitCPU(seconds uint64) (<-chan os.Signal, error) {
	reached := make(chan os.Signal, 1)
	signal.Notify(reached, unix.SIGXCPU)
	return reached, syscall.Setrlimit(unix.RLIMIT_CPU, &syscall.Rlimit{Cur: seconds, Max: seconds + 2})
}

// allowedCalls are what Go's runtime needs for memory, threads and time, and what standard input and output need.
// Nothing opens a file or a connection, or starts a program.
var allowedCalls = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_FCNTL,
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_MREMAP, unix.SYS_BRK,
	unix.SYS_FUTEX, unix.SYS_CLONE, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ,
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_GETTIMEOFDAY, unix.SYS_GETRANDOM,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_TGKILL, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PIPE2,
	unix.SYS_SETITIMER, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_PRCTL, unix.SYS_UNAME,
}

// auditArchitectures are the architectures of system calls, by that of Go. The filter has the numbers of one alone.
var auditArchitectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// Offsets in struct seccomp_data.
const (
	offsetOfCall         = 0
	offsetOfArchitecture = 4
	offsetOfFlags        = 16 // the low half of the first argument
)

// Confine takes the network, files and programs away from all threads of this process for good. A call that is not allowed
// fails as one that the kernel lacks.
func Confine() error {
	architecture, known := auditArchitectures[runtime.GOARCH]
	if !known {
		return fmt.Errorf("processes of %s cannot be confined", runtime.GOARCH)
	}
	filter := newFilter(architecture)
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("confine the process: %w", err)
	}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	switch {
	case errno != 0:
		return fmt.Errorf("confine the process by seccomp: %w", errno)
	case thread != 0:
		return fmt.Errorf("confine the process by seccomp: thread %d has another filter", thread)
	}
	return nil
}

// newFilter returns the filter of system calls.
func newFilter(architecture uint32) []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	answer := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	skipUnless := func(test uint16, value uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, K: value, Jf: 1}
	}
	refuse := answer(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS))
	filter := []unix.SockFilter{
		load(offsetOfArchitecture),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: architecture, Jt: 1},
		answer(unix.SECCOMP_RET_KILL_PROCESS),
		load(offsetOfCall),
	}
	for _, call := range allowedCalls {
		if call != unix.SYS_CLONE {
			filter = append(filter, skipUnless(unix.BPF_JEQ, call), answer(unix.SECCOMP_RET_ALLOW))
		}
	}
	// A thread may be started, and no process.
	return append(filter,
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jt: 1}, refuse,
		load(offsetOfFlags), skipUnless(unix.BPF_JSET, unix.CLONE_THREAD), answer(unix.SECCOMP_RET_ALLOW), refuse)
}

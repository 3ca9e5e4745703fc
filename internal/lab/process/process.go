// Package process runs the parts of a lab as detached processes and finds them
// again later, from any process.
//
// Contract:
//
//   - A Spec says how a process is run and where its log and identity file
//     are; equal Specs mean the same process, whoever holds them. Nothing is
//     kept in memory, so that one program can start what another one ends.
//   - A started process has a session of its own and outlives its starter, unless it is
//     Bound.
//   - A process is identified by its id and its start time. A process id that
//     went to somebody else is never signalled: signals go through a handle
//     that was opened before the start time was compared.
//   - Every process carries Spec.Owner in its environment, so that Orphans
//     finds those whose identity file was lost, for instance because the
//     starter was killed in between.
//   - Functions may be called concurrently; two concurrent Starts of one Spec
//     are the caller's to exclude.
//   - Linux only: it reads /proc.
package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// startMark begins the line that a start leaves in the log.
const startMark = "---- "

// ownerVariable marks the processes of one lab in their environment.
const ownerVariable = "ATOLL_LAB_OWNER"

// State says whether a process runs.
type State string

const (
	// Running means that the process which was started last is alive.
	Running State = "Running"
	// Stopped means that it ended, by itself or by a signal.
	Stopped State = "Stopped"
	// NeverStarted means that no start is on record.
	NeverStarted State = "NeverStarted"
)

// Spec describes one process.
type Spec struct {
	// Name is what people call it, for messages.
	Name string
	// Owner is the lab's directory, absolute.
	Owner string
	// Command is the program's path and its arguments.
	Command []string
	// Bound processes are sent SIGTERM when their starter ends, however it ends.
	Bound bool
	// Env is added to the starter's environment, as KEY=value.
	Env []string
	// Log collects stdout and stderr, appended over restarts.
	Log string
	// Identity is the file that remembers the last started process.
	Identity string
}

// identity tells a process from a later one with the same id.
type identity struct {
	PID int `json:"pid"`
	// StartTime is in clock ticks since boot, as the kernel counts it.
	StartTime uint64 `json:"startTime"`
	// Boot is the id of the boot that StartTime counts from.
	Boot string `json:"boot"`
}

// Start starts the process and returns once it exists, not once it is ready.
// It fails if the last started one still runs.
func (s Spec) Start() error {
	if state, id := s.state(); state == Running {
		return fmt.Errorf("%s runs already as process %d; stop it first", s.Name, id.PID)
	}
	for _, file := range []string{s.Log, s.Identity} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return fmt.Errorf("start %s: %w", s.Name, err)
		}
	}
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}
	defer log.Close()
	// Arguments may hold a join token, so the log names the program only.
	fmt.Fprintf(log, "%s%s %s starts %s\n", startMark, time.Now().Format(time.RFC3339), s.Name, s.Command[0])

	cmd := exec.Command(s.Command[0], s.Command[1:]...)
	cmd.Env = append(append(os.Environ(), s.Env...), ownerVariable+"="+s.Owner)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if s.Bound {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	}
	if err := run(cmd); err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}

	id, err := identify(cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("start %s: it ended at once: %w\n%s", s.Name, err, s.LastLines())
	}
	data, err := json.Marshal(id)
	if err == nil {
		err = os.WriteFile(s.Identity+".tmp", data, 0o600)
	}
	if err == nil {
		err = os.Rename(s.Identity+".tmp", s.Identity)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: remember its process id: %w", s.Name, err), cmd.Process.Kill())
	}
	return nil
}

// run a command, and collect it when it ends: only a parent can, and a killed process
// would stay visible until the starter ends. How it ended is in its log.
func run(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		// For the kernel, what ends a Bound child is the end of the thread that
		// started it. This one stays until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	return <-started
}

// State says whether the process runs, and its id if it does.
func (s Spec) State() (State, int) {
	state, id := s.state()
	if state != Running {
		return state, 0
	}
	return state, id.PID
}

func (s Spec) state() (State, identity) {
	data, err := os.ReadFile(s.Identity)
	if errors.Is(err, fs.ErrNotExist) {
		return NeverStarted, identity{}
	}
	var id identity
	if err != nil || json.Unmarshal(data, &id) != nil {
		return Stopped, identity{}
	}
	if !id.alive() {
		return Stopped, id
	}
	return Running, id
}

// Ended is an error where the process does not run, with its name and the end of its log.
func (s Spec) Ended() error {
	if state, _ := s.State(); state == Running {
		return nil
	}
	return fmt.Errorf("%s ended; its log %s ends with:\n%s", s.Name, s.Log, s.LastLines())
}

// Kill sends SIGKILL and returns once the process is gone. It is no error if
// the process does not run.
func (s Spec) Kill(ctx context.Context) error {
	state, id := s.state()
	if state != Running {
		return nil
	}
	return id.kill(ctx, s.Name)
}

// Stop asks the process to end, and kills it after grace. It returns once the
// process is gone; it is no error if it does not run.
func (s Spec) Stop(ctx context.Context, grace time.Duration) error {
	state, id := s.state()
	if state != Running {
		return nil
	}
	if err := id.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s (process %d): %w", s.Name, id.PID, err)
	}
	if id.gone(ctx, grace) == nil {
		return nil
	}
	return id.kill(ctx, s.Name)
}

// WaitReady polls ready until it returns nil, and gives up when the process
// ends or the timeout has passed; the error then says which, carries ready's
// last complaint and the end of the log.
func (s Spec) WaitReady(ctx context.Context, timeout time.Duration, ready func(context.Context) error) error {
	var complaint error
	ended := false
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		// State is read first: a process that became ready and then ended
		// has to count as ended.
		state, _ := s.State()
		if complaint = ready(ctx); complaint == nil && state == Running {
			return true, nil
		}
		ended = state != Running
		return ended, nil
	})
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("gave up waiting for %s: %w", s.Name, context.Cause(ctx))
	case ended:
		return fmt.Errorf("%s ended before it was ready; its log %s ends with:\n%s", s.Name, s.Log, s.LastLines())
	case err != nil:
		return fmt.Errorf("%s runs but is not ready after %s (%w); its log %s ends with:\n%s", s.Name, timeout, complaint, s.Log, s.LastLines())
	}
	return nil
}

// LastLines returns the end of the log, indented, for error messages.
func (s Spec) LastLines() string {
	const lines, size = 15, 8 << 10
	file, err := os.Open(s.Log)
	if err != nil {
		return "  (no log: " + err.Error() + ")"
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "  (no log: " + err.Error() + ")"
	}
	tail := make([]byte, min(size, info.Size()))
	if _, err := file.ReadAt(tail, info.Size()-int64(len(tail))); err != nil {
		return "  (no log: " + err.Error() + ")"
	}
	all := strings.Split(strings.TrimRight(string(tail), "\n"), "\n")
	for i := len(all) - 1; i > 0; i-- {
		if strings.HasPrefix(all[i], startMark) {
			all = all[i:] // what was before belongs to another process
			break
		}
	}
	all = all[max(0, len(all)-lines):]
	return "  " + strings.Join(all, "\n  ")
}
